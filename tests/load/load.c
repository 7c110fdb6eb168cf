// Copyright (c) 2026, arcpro.b70 contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Load generator with the engine behind the proxy:
//   load ENGINE_PORT PORT SPIN WATCH WARMUP_S SECONDS[+AFTER_S] NAME:CONNECTIONS:SPREAD_MS:BODY_BYTES:TARGET...
// Both are one process and one loop, so that neither waits for the other to get the processor; with SPIN 1 the loop never
// sleeps, so that no timer that is late and no core that must wake up is measured.
// The connections of a group begin evenly spread over SPREAD_MS. Each sends its POST again as soon as the answer is complete.
// For AFTER_S more it goes on and counts nothing: the engine may be in the middle of what another generator still measures.
// Prints one JSON object: for each group the counts, and percentiles in microseconds of the time to the first body byte, to the
// complete answer, and of each event's way from the engine. "stalls": times in which the loop itself stood still for more
// than 0.2 ms, their number and sum in ms: what others on the machine took from it. "watched": the same for the core WATCH
// (-1: none), on which the proxy runs. Times in "first" and "way" that such a standstill is part of are kept apart.
#include "engine.h"

#define MAX_CONNS 4096
#define BUF (256 * 1024)
// how often the watch looks, and when it was late; timers of virtual machines come up to 50 us late
#define WATCH_NS 500000
#define STOOD_NS 150000

// Log-linear histogram: 64 steps per power of two, so a percentile is right to 1.6 %.
typedef struct { uint32_t bins[64 * 40]; uint64_t count, max; } hist;

static void add(hist *h, uint64_t ns) {
  if (ns > h->max) h->max = ns;
  h->count++;
  if (ns < 64) { h->bins[ns]++; return; }
  int top = 63 - __builtin_clzll(ns);
  int at = (top - 5) * 64 + (int)((ns >> (top - 6)) & 63);
  h->bins[at < 64 * 40 ? at : 64 * 40 - 1]++;
}

static double percentile(const hist *h, double p) {
  uint64_t want = (uint64_t)((double)h->count * p), seen = 0;
  for (int i = 0; i < 64 * 40; i++) {
    seen += h->bins[i];
    if (seen > want) return i < 64 ? i / 1000.0 : (double)((64ull + (uint64_t)(i % 64)) << (i / 64 - 1)) / 1000.0;
  }
  return (double)h->max / 1000.0;
}

typedef struct conn conn;

typedef struct {
  char name[32], target[256];
  int conns, joined;
  uint64_t next_join, join_every;
  conn *first_conn;
  long body;
  char *request;
  size_t request_size;
  long ok, unavailable, other, broken, events, bytes;
  hist first, whole, way, disturbed;
} group;

struct conn {
  int fd, in_body, chunked, status;
  long left;
  size_t sent, have;
  uint64_t started;
  group *g;
  char *buf;
};

// What a core was taken away for: number of times, ns in all, and until when what began is disturbed by it.
typedef struct { volatile uint64_t count, ns, until, ready; } standstill;
static standstill own, *core;

static void stood(standstill *s, uint64_t from, uint64_t to) {
  s->count++;
  s->ns += to - from;
  // what gathered meanwhile takes at most as long again
  s->until = to + (to - from);
}

// A process on the proxy's core that comes before the proxy: if it wakes up late, nobody could run there.
static void watch(int number) {
  core = mmap(NULL, sizeof *core, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (core == MAP_FAILED) die("mmap");
  pid_t parent = getpid();
  if (number < 0) return;
  if (fork()) {
    // it has to leave this core before the loop takes it for itself
    while (!core->ready) usleep(1000);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(number, &set);
  struct sched_param p;
  sched_getparam(0, &p);
  p.sched_priority++;
  if (sched_setaffinity(0, sizeof set, &set) || sched_setscheduler(0, SCHED_FIFO, &p) || prctl(PR_SET_TIMERSLACK, 1)) die("watch");
  core->ready = 1;
  for (uint64_t due = now_ns(); getppid() == parent;) {
    due += WATCH_NS;
    struct timespec t = {.tv_sec = (time_t)(due / 1000000000ull), .tv_nsec = (long)(due % 1000000000ull)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    uint64_t now = now_ns();
    if (now - due > STOOD_NS) { stood(core, due, now); due = now; }
  }
  _exit(0);
}

// A time from its beginning until now: among the others, or kept apart.
static void note(hist *h, group *g, uint64_t since, uint64_t now) {
  add(since < own.until || since < core->until ? &g->disturbed : h, now - since);
}

static struct sockaddr_in to;
static int ep, counting;
static conn all[MAX_CONNS];

static void push(conn *c) {
  group *g = c->g;
  while (c->sent < g->request_size) {
    ssize_t n = send(c->fd, g->request + c->sent, g->request_size - c->sent, MSG_NOSIGNAL);
    if (n < 0) break;
    c->sent += (size_t)n;
  }
  struct epoll_event e = {.events = EPOLLIN | (c->sent < g->request_size ? EPOLLOUT : 0u), .data.ptr = c};
  static uint32_t armed[65536];
  if (armed[c->fd] != e.events) { epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); armed[c->fd] = e.events; }
}

static void begin(conn *c) {
  c->in_body = 0;
  c->sent = 0;
  c->started = now_ns();
  push(c);
}

static void join(conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  no_delay(c->fd);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
  c->have = 0;
  begin(c);
}

static void complete(conn *c) {
  group *g = c->g;
  if (counting) {
    if (c->status == 200) g->ok++; else if (c->status == 503) g->unavailable++; else g->other++;
    add(&g->whole, now_ns() - c->started);
  }
  begin(c);
}

static void again(conn *c) {
  if (counting) c->g->broken++;
  close(c->fd);
  join(c);
}

// Consumes what is complete in the buffer; returns 0 when more is needed, -1 when the connection is useless.
static int step(conn *c, uint64_t now) {
  group *g = c->g;
  if (!c->in_body) {
    char *end = memmem(c->buf, c->have, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end + 4 - c->buf);
    end[2] = 0;
    c->status = atoi(c->buf + 9);
    c->chunked = strcasestr(c->buf, "\r\ntransfer-encoding: chunked") != NULL;
    char *length = strcasestr(c->buf, "\r\ncontent-length:");
    c->left = length ? atol(length + 17) : 0;
    if (!c->chunked && !length) return -1;
    c->in_body = 1;
    memmove(c->buf, c->buf + head, c->have -= head);
    if (c->chunked || c->left) return c->have ? 1 : 0;
    complete(c);
    return 0;
  }
  if (c->in_body == 1 && c->have) {
    c->in_body = 2;
    if (counting) note(&g->first, g, c->started, now);
  }
  if (!c->chunked) {
    if ((long)c->have < c->left) { c->left -= (long)c->have; if (counting) g->bytes += (long)c->have; c->have = 0; return 0; }
    if (counting) g->bytes += c->left;
    memmove(c->buf, c->buf + c->left, c->have -= (size_t)c->left);
    complete(c);
    return 0;
  }
  char *line = memmem(c->buf, c->have, "\r\n", 2);
  if (!line) return 0;
  size_t size = strtoul(c->buf, NULL, 16), total = (size_t)(line - c->buf) + 2 + size + 2;
  if (c->have < total) return 0;
  for (char *at = line + 2; size && (at = memmem(at, (size_t)(line + 2 + size - at), "\"t\":", 4)); at += 4) {
    if (counting) { note(&g->way, g, strtoull(at + 4, NULL, 10), now); g->events++; }
  }
  if (counting) g->bytes += (long)size;
  memmove(c->buf, c->buf + total, c->have -= total);
  if (size) return 1;
  complete(c);
  return 0;
}

static void report(group *g, double seconds) {
  printf("\"%s\":{\"ok\":%ld,\"unavailable\":%ld,\"other\":%ld,\"broken\":%ld,\"events\":%ld,\"bytes\":%ld,\"seconds\":%.3f", g->name, g->ok,
         g->unavailable, g->other, g->broken, g->events, g->bytes, seconds);
  const struct { const char *name; hist *h; } rows[] = {{"first", &g->first}, {"whole", &g->whole}, {"way", &g->way}, {"disturbed", &g->disturbed}};
  for (int i = 0; i < 4; i++)
    printf(",\"%s\":{\"count\":%lu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", rows[i].name, rows[i].h->count,
           percentile(rows[i].h, .5), percentile(rows[i].h, .9), percentile(rows[i].h, .99), (double)rows[i].h->max / 1000.0);
  printf("}");
}

int main(int argc, char **argv) {
  if (argc < 8) {
    fprintf(stderr, "usage: load ENGINE_PORT PORT SPIN WATCH WARMUP_S SECONDS[+AFTER_S] NAME:CONNECTIONS:SPREAD_MS:BODY_BYTES:TARGET...\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  to = address("127.0.0.1", argv[2]);
  int spin = atoi(argv[3]);
  watch(atoi(argv[4]));
  char *plus;
  double warmup = atof(argv[5]), seconds = strtod(argv[6], &plus), after = *plus == '+' ? atof(plus + 1) : 0;
  ep = epoll_create1(0);
  engine_listen(ep, argv[1]);
  int groups = argc - 7, total = 0;
  group *gs = calloc((size_t)groups, sizeof *gs);
  for (int i = 0; i < groups; i++) {
    group *g = &gs[i];
    double spread;
    if (sscanf(argv[7 + i], "%31[^:]:%d:%lf:%ld:%255s", g->name, &g->conns, &spread, &g->body, g->target) != 5 || g->conns < 1) {
      fprintf(stderr, "bad group %s\n", argv[7 + i]);
      return 2;
    }
    g->request = malloc((size_t)g->body + 2048);
    int n = sprintf(g->request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nUser-Agent: load\r\nAccept: */*\r\nContent-Type: application/json\r\n"
                    "Content-Length: %ld\r\n\r\n", g->target, argv[2], g->body);
    // a chat request whose size is one long text, as an image in base64 is
    int top = sprintf(g->request + n, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"");
    if (g->body < top + 4) { fprintf(stderr, "a body needs at least %d bytes\n", top + 4); return 2; }
    memset(g->request + n + top, 'A', (size_t)(g->body - top - 4));
    memcpy(g->request + n + g->body - 4, "\"}]}", 4);
    g->request_size = (size_t)(n + g->body);
    g->first_conn = &all[total];
    g->next_join = now_ns();
    g->join_every = (uint64_t)(spread * 1e6 / g->conns);
    if (total + g->conns > MAX_CONNS) { fprintf(stderr, "more than %d connections\n", MAX_CONNS); return 2; }
    for (int k = 0; k < g->conns; k++) {
      conn *c = &all[total++];
      c->g = g;
      c->buf = malloc(BUF);
    }
  }
  uint64_t start = now_ns() + (uint64_t)(warmup * 1e9), end = start + (uint64_t)(seconds * 1e9);
  uint64_t over = end + (uint64_t)(after * 1e9), last = 0, may_take = 0;
  struct epoll_event got[512];
  for (;;) {
    uint64_t now = now_ns();
    if (now >= over) break;
    if (now >= end) counting = 0;
    // longer than the work can have taken: the loop was not let run
    if (spin && last && now - last > may_take) {
      engine_put_off(now - last);
      stood(&own, last, now);
    }
    last = now;
    if (!counting && now >= start && now < end) {
      counting = 1;
      own.count = own.ns = core->count = core->ns = 0;
      most_active = active;
    }
    uint64_t wake = now < start ? start : now < end ? end : over;
    for (int i = 0; i < groups; i++) {
      group *g = &gs[i];
      for (; g->joined < g->conns && now >= g->next_join; g->next_join += g->join_every) join(&g->first_conn[g->joined++]);
      if (g->joined < g->conns && g->next_join < wake) wake = g->next_join;
    }
    uint64_t due = engine_due();
    if (due && due < wake) wake = due;
    int n = spin ? epoll_wait(ep, got, 512, 0) : wait_until(ep, got, 512, wake);
    may_take = n > 0 ? 2000000 + (uint64_t)n * 50000 : 200000;
    for (int i = 0; i < n; i++) {
      if (got[i].data.u64 & ENGINE_MARK) {
        engine_ready(ep, (int)(got[i].data.u64 & ~ENGINE_MARK));
        continue;
      }
      conn *c = got[i].data.ptr;
      if (got[i].events & EPOLLOUT) push(c);
      if (!(got[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
      ssize_t r = recv(c->fd, c->buf + c->have, BUF - c->have, 0);
      if (r < 0 && errno == EAGAIN) continue;
      if (r <= 0) { again(c); continue; }
      c->have += (size_t)r;
      now = now_ns();
      int more;
      while ((more = step(c, now)) > 0) {}
      if (more < 0) again(c);
    }
  }
  printf("{");
  for (int i = 0; i < groups; i++) { if (i) printf(","); report(&gs[i], seconds); }
  printf(",\"most_active\":%ld,\"aborted\":%ld,\"stalls\":%lu,\"stalled_ms\":%.1f,\"watched\":%lu,\"watched_ms\":%.1f}\n", most_active, aborted,
         own.count, (double)own.ns / 1e6, core->count, (double)core->ns / 1e6);
  return 0;
}
