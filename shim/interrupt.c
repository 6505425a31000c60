/* interrupt.c: Ctrl-C ends a run. Python's own handler only sets a flag, which nobody looks at
 * while the main thread is in a run. So a handler of ours calls Python's and then cancels the run.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "ext.h"

static pthread_t main_thread;
static struct sigaction python_handler;  /* or whose else was there */
static _Atomic(braid_session *) running; /* in the main thread */
static volatile sig_atomic_t interrupted;

static void handler(int number, siginfo_t *info, void *context) {
    /* Only the main thread knows that the session is not freed while it looks. */
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
        return;
    }
    if (python_handler.sa_flags & SA_SIGINFO)
        python_handler.sa_sigaction(number, info, context);
    else
        python_handler.sa_handler(number);
    braid_session *s = atomic_load(&running);
    if (!s) return;
    interrupted = 1;
    braid_session_cancel(s);
}

/* Python and others replace handlers at any time, so this looks again at each tick of the clock (a
 * system call for each run would be a fifth of a short one). */
static void install(void) {
    static struct timespec last;
    struct timespec tick;
    struct sigaction now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    if (tick.tv_nsec == last.tv_nsec && tick.tv_sec == last.tv_sec) return;
    last = tick;
    if (sigaction(SIGINT, NULL, &now) != 0) return;
    if (now.sa_flags & SA_SIGINFO ? now.sa_sigaction == handler
                                  : now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
        return;
    python_handler = now;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = handler;
    sigaction(SIGINT, &now, NULL);
}

bool interrupt_begin(braid_session *session) {
    if (!pthread_equal(pthread_self(), main_thread)) return false;
    install();
    interrupted = 0;
    atomic_store(&running, session);
    return true;
}

bool interrupt_end(bool begun) {
    if (!begun) return false;
    atomic_store(&running, NULL);
    return interrupted != 0;
}

unsigned interrupt_forks;

/* The thread that forked is the child's main thread, and its only one. */
static void forked(void) {
    main_thread = pthread_self();
    interrupt_forks++;
}

bool interrupt_add(PyObject *module) {
    (void)module;
    /* The extension may be imported by another thread: Python knows the main one. */
    PyObject *thread = call_python("threading", "main_thread", "()");
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = (pthread_t)PyLong_AsUnsignedLongLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    if (PyErr_Occurred()) return false;
    pthread_atfork(NULL, NULL, forked);
    return true;
}
