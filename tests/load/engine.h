// Copyright (c) 2026, arcpro.b70 contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// An engine that costs next to nothing; it lives in the load generator's loop.
//   ?chunks=N&every=US&size=B   N events of B bytes, the first at once, then one every US microseconds
//   &words=N                    of only N words (1 to 32), &logprobs=1 with the logprob of each
//   ?plain=B                    one JSON answer of B bytes
// Each event carries the time it was sent, so that the reader knows how long it was under way.
#ifndef B70_LOAD_ENGINE_H
#define B70_LOAD_ENGINE_H

#include "common.h"

#define MAX_FD 16384
#define MAX_STREAMS 4096
#define IN_SIZE 4096
// in the data of epoll events: what belongs to the engine, as opposed to pointers of the generator
#define ENGINE_MARK (1ull << 63)

typedef struct served {
  int open, streaming, size, phase, words, logprobs;
  char in[IN_SIZE];
  int have;
  long body_left, chunks_left;
  uint64_t every, due;
  struct served *next;  // in the queue of due events
  int fd, queued;
} served;

static served *conns[MAX_FD];
static long active, most_active, aborted;
static int listener;
static uint64_t origin;  // of the grid on which events stand
static char taken[MAX_STREAMS];
static char *answer_text;

// One queue per interval in use, in the order in which streams are due.
typedef struct {
  uint64_t every;
  served *first, *last;
} queue;
static queue queues[8];

static void enqueue(served *c) {
  for (int i = 0; i < 8; i++) {
    queue *q = &queues[i];
    if (!q->every) q->every = c->every;
    if (q->every != c->every) continue;
    // nearly always the last; behind one that is due later it would wait for that one, and they would leave together
    served **at = q->last && q->last->due <= c->due ? &q->last->next : &q->first;
    while (*at && (*at)->due <= c->due) at = &(*at)->next;
    c->next = *at;
    c->queued = 1;
    *at = c;
    if (!c->next) q->last = c;
    return;
  }
  fprintf(stderr, "more than 8 different intervals\n");
  exit(2);
}

// Streams stand on a grid: each has the lowest phase that is free, and phases are spread evenly over the interval however
// many there are. How streams happen to fall together would otherwise decide how often the proxy is woken, and how long
// events wait for each other. The first wait is half an interval to one and a half.
static void enqueue_first(served *c) {
  for (c->phase = 0; c->phase < MAX_STREAMS - 1 && taken[c->phase]; c->phase++) {}
  taken[c->phase] = 1;
  double part = c->phase * 0.6180339887;
  uint64_t now = now_ns();
  c->due = now - (now - origin) % c->every + (uint64_t)((part - (long)part) * (double)c->every);
  while (c->due < now + c->every / 2) c->due += c->every;
  enqueue(c);
}

static void stream_over(served *c) {
  c->streaming = 0;
  active--;
  if (c->phase >= 0) taken[c->phase] = 0;
  c->phase = -1;
}

static void drop(served *c) {
  if (c->streaming) { aborted++; stream_over(c); }
  close(c->fd);
  conns[c->fd] = NULL;
  c->open = c->streaming = 0;
  if (!c->queued) free(c);
}

static void put(served *c, const char *data, size_t size) {
  while (size) {
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
    if (n < 0) {
      // a reader this slow is outside of what is measured: wait for it
      if (errno == EAGAIN) { usleep(50); continue; }
      return;
    }
    data += n;
    size -= (size_t)n;
  }
}

// An event has a word as engines send it, where there is room for that: what reads streams has something to read.
static void send_event(served *c) {
  static const char *words[] = {
    "the", "river", "runs", "past", "an", "old", "mill", "where", "nobody", "grinds", "corn", "any", "more", "since", "last",
    "winter", "came", "and", "took", "both", "wheels", "with", "it", "so", "people", "walk", "to", "town", "for", "their", "flour",
    "now",
  };
  static uint32_t chance = 1;
  chance = chance * 1664525u + 1013904223u;
  char buf[70000], word[260] = "", logprob[140] = "null";
  if (c->size >= 200) {
    const char *said = words[(chance >> 16) % (uint32_t)c->words];
    if (c->logprobs)
      snprintf(logprob, sizeof logprob,
               "{\"content\":[{\"token\":\" %s\",\"logprob\":-0.%05u,\"bytes\":[32,116,104,101],\"top_logprobs\":[]}]}", said,
               chance >> 16);
    snprintf(word, sizeof word, "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" %s\"},\"logprobs\":%s,\"finish_reason\":null}],",
             said, logprob);
  }
  int n = snprintf(buf, sizeof buf, "%x\r\ndata: {\"t\":%019llu,%s\"pad\":\"", c->size, (unsigned long long)now_ns(), word);
  int start = (int)(strchr(buf, '\n') - buf) + 1;
  int pad = c->size - (n - start) - 4;
  memset(buf + n, 'x', (size_t)pad);
  n += pad;
  memcpy(buf + n, "\"}\n\n\r\n", 6);
  n += 6;
  if (--c->chunks_left == 0) {
    memcpy(buf + n, "0\r\n\r\n", 5);
    n += 5;
    stream_over(c);
  }
  put(c, buf, (size_t)n);
}

static void respond(served *c) {
  long plain = query(c->in, "plain=", 0);
  if (!strncmp(c->in, "GET /", 5)) {
    put(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
  } else if (plain || !strstr(c->in, "chunks=")) {
    int h = snprintf(answer_text, 256, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %ld\r\n\r\n", plain);
    memset(answer_text + h, ' ', (size_t)plain);
    put(c, answer_text, (size_t)(h + plain));
  } else {
    c->chunks_left = query(c->in, "chunks=", 1);
    c->every = (uint64_t)query(c->in, "every=", 5000) * 1000;
    c->size = (int)query(c->in, "size=", 250);
    c->words = (int)query(c->in, "words=", 32);
    c->logprobs = (int)query(c->in, "logprobs=", 0);
    c->streaming = 1;
    c->phase = -1;
    if (++active > most_active) most_active = active;
    const char *h = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(c, h, strlen(h));
    send_event(c);
    if (c->streaming) enqueue_first(c);
  }
}

static void take(served *c) {
  static char sink[1 << 20];
  for (;;) {
    if (c->body_left > 0) {
      ssize_t n = recv(c->fd, sink, sizeof sink < (size_t)c->body_left ? sizeof sink : (size_t)c->body_left, 0);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) { drop(c); return; }
      c->body_left -= n;
      if (c->body_left) continue;
      c->have = 0;
      respond(c);
      continue;
    }
    ssize_t n = recv(c->fd, c->in + c->have, (size_t)(IN_SIZE - 1 - c->have), 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) { drop(c); return; }
    c->have += (int)n;
    c->in[c->have] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) { if (c->have >= IN_SIZE - 1) { drop(c); return; } continue; }
    char *length = strcasestr(c->in, "\r\ncontent-length:");
    long size = length && length < end ? atol(length + 17) : 0;
    long got = c->have - (end + 4 - c->in);
    c->body_left = size - got;
    if (c->body_left <= 0) { c->body_left = 0; respond(c); c->have = 0; }
  }
}

static void engine_listen(int ep, const char *port) {
  answer_text = malloc(1 << 20);
  struct sockaddr_in a = address("127.0.0.1", port);
  int one = 1;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 4096)) die("listen");
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = ENGINE_MARK | (uint64_t)listener};
  epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e);
}

static void engine_ready(int ep, int fd) {
  if (fd != listener) { if (conns[fd]) take(conns[fd]); return; }
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    if (fd >= MAX_FD || conns[fd]) { close(fd); continue; }
    no_delay(fd);
    served *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->open = 1;
    conns[fd] = c;
    struct epoll_event in = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = ENGINE_MARK | (uint64_t)fd};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &in);
  }
}

// Puts everything off by a time in which nothing could be sent: made up for in a burst, it would be a load of its own.
static void engine_put_off(uint64_t ns) {
  origin += ns;
  for (int i = 0; i < 8; i++)
    for (served *c = queues[i].first; c; c = c->next) c->due += ns;
}

// Sends what is due; returns when the next event is, 0 for never.
static uint64_t engine_due(void) {
  uint64_t now = now_ns(), next = 0;
  for (int i = 0; i < 8; i++) {
    queue *q = &queues[i];
    while (q->first && q->first->due <= now) {
      served *c = q->first;
      q->first = c->next;
      if (!q->first) q->last = NULL;
      c->queued = 0;
      if (!c->open) { free(c); continue; }
      send_event(c);
      if (c->streaming) { c->due += c->every; enqueue(c); }
    }
    if (q->first && (!next || q->first->due < next)) next = q->first->due;
  }
  return next;
}

#endif
