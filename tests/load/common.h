// Copyright (c) 2026, arcpro.b70 contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// What the backend and the load generator share.
#ifndef B70_LOAD_COMMON_H
#define B70_LOAD_COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void die(const char *what) {
  perror(what);
  exit(1);
}

static inline void no_delay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline struct sockaddr_in address(const char *host, const char *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
    fprintf(stderr, "%s is not an IPv4 address\n", host);
    exit(2);
  }
  return a;
}

// Waits on epoll until an absolute time in ns (0: for ever).
static inline int wait_until(int ep, struct epoll_event *events, int count, uint64_t until) {
  if (!until) return epoll_wait(ep, events, count, -1);
  uint64_t now = now_ns();
  uint64_t left = until > now ? until - now : 0;
  struct timespec t = {.tv_sec = (time_t)(left / 1000000000ull), .tv_nsec = (long)(left % 1000000000ull)};
  return epoll_pwait2(ep, events, count, &t, NULL);
}

// Value of KEY=NUMBER in a request line, or a default.
static inline long query(const char *line, const char *key, long fallback) {
  const char *at = strstr(line, key);
  return at ? atol(at + strlen(key)) : fallback;
}

#endif
