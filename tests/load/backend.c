// Copyright (c) 2026, arcpro.b70 contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// An engine that costs next to nothing:  backend PORT
//   ?chunks=N&every=US&size=B   N events of B bytes, the first at once, then one every US microseconds
//   ?plain=B                    one JSON answer of B bytes
//   GET /stats                  counters as JSON, then reset
// Each event carries the time it was sent, so that a reader on the same machine knows how long it was under way.
#include "common.h"

#define MAX_FD 16384
#define IN_SIZE 4096

typedef struct conn {
  int open, streaming, size;
  char in[IN_SIZE];
  int have;
  long body_left, chunks_left;
  uint64_t every, due;
  struct conn *next;  // in the queue of due events
  int fd, queued;
} conn;

static conn *conns[MAX_FD];
static int ep;
static long active, most_active, requests, aborted, chunks;
static char *answer_text;

// Streams that share an interval are due in the order in which they were queued; one queue per interval in use.
typedef struct {
  uint64_t every;
  conn *first, *last;
} queue;
static queue queues[8];

static void enqueue(conn *c) {
  for (int i = 0; i < 8; i++) {
    queue *q = &queues[i];
    if (!q->every) q->every = c->every;
    if (q->every != c->every) continue;
    c->next = NULL;
    c->queued = 1;
    if (q->last) q->last->next = c; else q->first = c;
    q->last = c;
    return;
  }
  fprintf(stderr, "more than 8 different intervals\n");
  exit(2);
}

// The first wait of a stream is cut to a phase of its own, spread evenly over the interval: how streams happen to fall
// together would otherwise decide how often the proxy is woken.
static void enqueue_first(conn *c) {
  static double phase = 0;
  phase += 0.6180339887;
  phase -= (int)phase;
  c->due = now_ns() + (uint64_t)((double)c->every * (0.5 + phase));
  enqueue(c);
  for (int i = 0; i < 8; i++) {
    queue *q = &queues[i];
    if (q->every != c->every || q->first == c) continue;
    conn **at = &q->first;
    while (*at != c && (*at)->due <= c->due) at = &(*at)->next;
    if (*at == c) return;
    conn *last = q->first;
    while (last->next != c) last = last->next;
    last->next = NULL;
    q->last = last;
    c->next = *at;
    *at = c;
    return;
  }
}

static void drop(conn *c) {
  if (c->streaming) { aborted++; active--; }
  close(c->fd);
  conns[c->fd] = NULL;
  c->open = c->streaming = 0;
  if (!c->queued) free(c);
}

static void put(conn *c, const char *data, size_t size) {
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

static void send_event(conn *c) {
  char buf[70000];
  int n = snprintf(buf, sizeof buf, "%x\r\ndata: {\"t\":%019llu,\"pad\":\"", c->size, (unsigned long long)now_ns());
  int start = (int)(strchr(buf, '\n') - buf) + 1;
  int pad = c->size - (n - start) - 4;
  memset(buf + n, 'x', (size_t)pad);
  n += pad;
  memcpy(buf + n, "\"}\n\n\r\n", 6);
  n += 6;
  chunks++;
  if (--c->chunks_left == 0) {
    memcpy(buf + n, "0\r\n\r\n", 5);
    n += 5;
    c->streaming = 0;
    active--;
  }
  put(c, buf, (size_t)n);
}

static void respond(conn *c) {
  requests++;
  char head[256];
  long plain = query(c->in, "plain=", 0);
  if (!strncmp(c->in, "GET /stats", 10)) {
    char body[256];
    int n = snprintf(body, sizeof body, "{\"requests\":%ld,\"most_active\":%ld,\"active\":%ld,\"aborted\":%ld,\"chunks\":%ld}", requests - 1,
                     most_active, active, aborted, chunks);
    int h = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n);
    put(c, head, (size_t)h);
    put(c, body, (size_t)n);
    requests = aborted = chunks = 0;
    most_active = active;
  } else if (!strncmp(c->in, "GET /health", 11)) {
    requests--;
    put(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
  } else if (plain || !strstr(c->in, "chunks=")) {
    int h = snprintf(answer_text, 256, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %ld\r\n\r\n", plain);
    memset(answer_text + h, ' ', (size_t)plain);
    put(c, answer_text, (size_t)(h + plain));
  } else {
    c->chunks_left = query(c->in, "chunks=", 1);
    c->every = (uint64_t)query(c->in, "every=", 5000) * 1000;
    c->size = (int)query(c->in, "size=", 250);
    c->streaming = 1;
    if (++active > most_active) most_active = active;
    const char *h = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(c, h, strlen(h));
    send_event(c);
    if (c->streaming) enqueue_first(c);
  }
}

static void take(conn *c) {
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

int main(int argc, char **argv) {
  if (argc != 2) { fprintf(stderr, "usage: backend PORT\n"); return 2; }
  signal(SIGPIPE, SIG_IGN);
  answer_text = malloc(1 << 20);
  struct sockaddr_in a = address("127.0.0.1", argv[1]);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 4096)) die("listen");
  ep = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, got[256];
  epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e);
  for (;;) {
    uint64_t next = 0;
    for (int i = 0; i < 8; i++)
      if (queues[i].first && (!next || queues[i].first->due < next)) next = queues[i].first->due;
    int n = wait_until(ep, got, 256, next);
    for (int i = 0; i < n; i++) {
      int fd = got[i].data.fd;
      if (fd != listener) { if (conns[fd]) take(conns[fd]); continue; }
      while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FD || conns[fd]) { close(fd); continue; }
        no_delay(fd);
        conn *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->open = 1;
        conns[fd] = c;
        struct epoll_event in = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &in);
      }
    }
    uint64_t now = now_ns();
    for (int i = 0; i < 8; i++) {
      queue *q = &queues[i];
      while (q->first && q->first->due <= now) {
        conn *c = q->first;
        q->first = c->next;
        if (!q->first) q->last = NULL;
        c->queued = 0;
        if (!c->open) { free(c); continue; }
        send_event(c);
        if (c->streaming) { c->due += c->every; enqueue(c); }
      }
    }
  }
}
