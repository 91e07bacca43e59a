/* Put before all of gRPC's C++ by scripts/cross: it lives on the monotonic clock alone.
 *
 * gRPC and Abseil measure how long to wait with the wall clock, and let the kernel wake them at a point of it. Then a
 * clock that is set back by a year makes a wait of one second last a year; and on 32-bit ARM, whose C library of that
 * age has 32-bit times, no wait lasts at all after 2038. They don't need to know what time it is: that is only in log
 * lines which nobody turns on.
 */
#ifdef __cplusplus
#include <linux/futex.h>
#include <sys/time.h>
#include <time.h>

static inline int cleat_clock_gettime(clockid_t clock, struct timespec* now) {
  return clock_gettime(clock == CLOCK_REALTIME ? CLOCK_MONOTONIC : clock, now);
}
#define clock_gettime cleat_clock_gettime

/* Abseil adds to it what a wait may last. */
static inline int cleat_gettimeofday(struct timeval* now, void*) {
  struct timespec monotonic;
  int failed = clock_gettime(CLOCK_MONOTONIC, &monotonic);
  now->tv_sec = monotonic.tv_sec;
  now->tv_usec = monotonic.tv_nsec / 1000;
  return failed;
}
#define gettimeofday cleat_gettimeofday

/* Of a wait, which is until a point of the monotonic clock without it. */
#undef FUTEX_CLOCK_REALTIME
#define FUTEX_CLOCK_REALTIME 0
#endif
