/* watch.c: a thread beside the command that handles ending signals and shows progress.
 *
 * The signals are blocked in all other threads. So the clean-up (cleanup.h) runs in an ordinary
 * thread, not in a signal handler. A signal that was ignored when the command started stays
 * ignored.
 */
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"

#define PATIENCE 2.0   /* seconds before a step is shown */
#define TICK 200000000 /* ns between updates */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char step[120]; /* what the command is doing; "": nothing to show */
static bool shown;     /* a progress line is on the terminal */
static sigset_t signals;

void cli_watch_clear(void) {
    pthread_mutex_lock(&lock);
    if (shown) fputs("\r\033[K", stderr);
    shown = false;
    *step = 0;
    pthread_mutex_unlock(&lock);
}

bool cli_watch_step(void *unused, const char *what, double seconds) {
    (void)unused;
    (void)seconds; /* the line has those of the whole command, also while no tick comes */
    pthread_mutex_lock(&lock);
    snprintf(step, sizeof step, "%s", what);
    pthread_mutex_unlock(&lock);
    return true;
}

static void show(double seconds) {
    pthread_mutex_lock(&lock);
    if (*step && seconds >= PATIENCE) {
        fprintf(stderr, "\r\033[K%s, %.0f s", step, seconds);
        fflush(stderr);
        shown = true;
    }
    pthread_mutex_unlock(&lock);
}

static _Noreturn void end_by(int signal_number) {
    sigset_t one;
    cli_watch_clear();
    cleanup_now();
    signal(signal_number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    kill(getpid(), signal_number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    _exit(128 + signal_number);
}

static void *watch(void *unused) {
    const bool terminal = isatty(STDERR_FILENO);
    const struct timespec tick = {.tv_nsec = TICK};
    const double begin = cli_now();
    (void)unused;
    for (;;) {
        int s = terminal ? sigtimedwait(&signals, NULL, &tick) : sigwaitinfo(&signals, NULL);
        if (s > 0) end_by(s);
        if (terminal) show(cli_now() - begin);
    }
}

void cli_watch(void) {
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    pthread_t t;
    sigemptyset(&signals);
    for (size_t i = 0; i < COUNT(number); i++) {
        struct sigaction had;
        if (sigaction(number[i], NULL, &had) == 0 && had.sa_handler != SIG_IGN)
            sigaddset(&signals, number[i]);
    }
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (pthread_create(&t, NULL, watch, NULL) != 0) {
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
        return;
    }
    pthread_detach(t);
    cleanup_arm();
}
