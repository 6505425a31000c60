// clock.cc: vector clocks, which say what a thread knows to have happened.
//
// A clock has an entry for each warp, and a list of single threads of which more is known. Flags
// and partial masks fill this list, barriers empty it. Threads share a clock until one changes it:
// after a block barrier all threads of the block have the same one.
#include "internal.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace emu {

static Clock *clock_new() {
    void *p = malloc(sizeof(Clock) + sizeof(uint32_t) * device.warps);
    if (!p) abort();
    Clock *c = new (p) Clock;
    c->refs = 1;
    return c;
}

Clock *clock_share(Clock *c) {
    if (c) c->refs++;
    return c;
}

void clock_drop(Clock *c) {
    if (!c || --c->refs) return;
    c->~Clock();
    free(c);
}

Clock *clock_first() {
    Clock *c = clock_new();
    for (unsigned i = 0; i < device.warps; i++) c->warp[i] = device.base;
    return c;
}

Clock *clock_own(Clock *c) {
    if (c->refs == 1) return c;
    Clock *copy = clock_new();
    memcpy(copy->warp, c->warp, sizeof(uint32_t) * device.warps);
    copy->later = c->later;
    c->refs--;
    return copy;
}

static void forget_known(Clock *c) {
    size_t n = 0;
    for (const Later &l : c->later)
        if (l.time > c->warp[device.thread[l.thread].warp->id]) c->later[n++] = l;
    c->later.resize(n);
}

void clock_learn(Clock *into, uint32_t thread, uint32_t time) {
    if (time <= into->warp[device.thread[thread].warp->id]) return;
    for (Later &l : into->later)
        if (l.thread == thread) {
            if (time > l.time) l.time = time;
            return;
        }
    into->later.push_back({thread, time});
}

void clock_join(Clock *into, const Clock *from) {
    if (!from || from == into) return;
    for (unsigned i = 0; i < device.warps; i++)
        if (from->warp[i] > into->warp[i]) into->warp[i] = from->warp[i];
    if (!into->later.empty()) forget_known(into);
    for (const Later &l : from->later) clock_learn(into, l.thread, l.time);
}

void clock_learn_warp(Clock *into, uint32_t warp, uint32_t time) {
    if (time > into->warp[warp]) into->warp[warp] = time;
    if (!into->later.empty()) forget_known(into);
}

bool clock_knows(const Clock *c, uint32_t thread, uint32_t time) {
    if (time <= c->warp[device.thread[thread].warp->id]) return true;
    for (const Later &l : c->later)
        if (l.thread == thread) return time <= l.time;
    return false;
}

} // namespace emu
