/* Faults that no verb of a proxy or a signal gives, for LD_PRELOAD. Each is off unless its variable
   names a file, and a file that is there or not switches it on and off.

   FAULT_FSYNC   while the file exists, fsync and fdatasync wait, and <file>.waiting is made
   FAULT_CLOCK   the file holds a number of seconds that is added to CLOCK_REALTIME
   FAULT_PORTS   "port=other,port=other": connections to 127.0.0.1:port go to 127.0.0.1:other  */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_at_the_disk(void) {
    const char *gate = getenv("FAULT_FSYNC");
    char waiting[4096];
    int rounds;
    if (gate == NULL || access(gate, F_OK) != 0) return;
    snprintf(waiting, sizeof waiting, "%s.waiting", gate);
    close(open(waiting, O_CREAT | O_WRONLY, 0644));
    for (rounds = 0; rounds < 4000 && access(gate, F_OK) == 0; rounds++) usleep(5000);
}

int fsync(int file) {
    wait_at_the_disk();
    return NEXT(fsync)(file);
}

int fdatasync(int file) {
    wait_at_the_disk();
    return NEXT(fdatasync)(file);
}

static long jump(void) {
    const char *path = getenv("FAULT_CLOCK");
    char text[32] = "";
    int file;
    if (path == NULL || (file = open(path, O_RDONLY)) < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static __typeof__(&clock_gettime) next;
    int result;
    if (next == NULL) next = NEXT(clock_gettime);
    result = next(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict when, void *restrict zone) {
    int result = NEXT(gettimeofday)(when, zone);
    if (result == 0) when->tv_sec += jump();
    return result;
}

time_t time(time_t *into) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (into != NULL) *into = moment.tv_sec;
    return moment.tv_sec;
}

/* Something in between accepts where nobody listens any more. A server that starts relies on being
   refused until its peer is there, so that is tried first. */
static int is_refused(const struct sockaddr_in *address) {
    int refused, probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return 0;
    refused = NEXT(connect)(probe, (const struct sockaddr *)address, sizeof *address) != 0;
    close(probe);
    return refused;
}

int connect(int link, const struct sockaddr *address, socklen_t size) {
    const char *ports = getenv("FAULT_PORTS");
    struct sockaddr_in changed;
    char text[1024], *rest = text, *pair;
    int from, to;
    if (ports != NULL && address->sa_family == AF_INET && size >= sizeof changed) {
        memcpy(&changed, address, sizeof changed);
        snprintf(text, sizeof text, "%s", ports);
        while ((pair = strsep(&rest, ",")) != NULL)
            if (sscanf(pair, "%d=%d", &from, &to) == 2 && ntohs(changed.sin_port) == from) {
                if (is_refused(&changed)) break;
                changed.sin_port = htons((unsigned short)to);
                return NEXT(connect)(link, (struct sockaddr *)&changed, sizeof changed);
            }
    }
    return NEXT(connect)(link, address, size);
}
