/* turns.c: launches of turns.cu, one after the other in a session's memory: whatever each of them
 * does last, the next one is in step with it, also behind a fault. With the turns of one block
 * forgotten, as if it had not kept them, that is seen.
 *
 * usage: turns, linked with turns.cu's object and the emulator. */
#include "tests/emulate/turns.h"
#include "codegen/emulate/driver.inc"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int error, const char *what) {
    if (!error) return;
    fprintf(stderr, "%s: error %d\n", what, error);
    exit(2);
}

typedef struct Session {
    void *function;
    uint64_t run, words;
    int launches;
} Session;

static Session begin(void *function) {
    Session s = {.function = function};
    must(emu_mem_alloc(&s.run, sizeof(Turns)), "alloc");
    must(emu_mem_alloc(&s.words, BK_WORDS_BYTES(TURNS_BLOCKS)), "alloc");
    must(emu_memset_d8(s.run, 0, sizeof(Turns)), "set");
    must(emu_memset_d8(s.words, 0, BK_WORDS_BYTES(TURNS_BLOCKS)), "set");
    return s;
}
static void end(const Session *s) {
    must(emu_mem_free(s->run), "free");
    must(emu_mem_free(s->words), "free");
}

/* Launches a kernel that takes these steps; returns whether something is wrong. */
static int launch(Session *s, const char *steps) {
    Turns t;
    must(emu_memcpy_dtoh(&t, s->run, sizeof t), "copy");
    t.k.words = (unsigned *)(uintptr_t)s->words;
    t.k.cancel = (const int *)(uintptr_t)(s->run + offsetof(Turns, cancel));
    snprintf(t.step, sizeof t.step, "%s", steps);
    t.launch = ++s->launches;
    t.wrong = 0;
    must(emu_memcpy_htod(s->run, &t, sizeof t), "copy");
    void *params[] = {&s->run};
    emu_launch_attribute attribute[2] = {
        {.id = EMU_LAUNCH_COOPERATIVE, .value.cooperative = 1},
        {.id = EMU_LAUNCH_CLUSTER_DIMENSION, .value.cluster = {BK_CLUSTER, 1, 1}}};
    emu_launch_config c = {TURNS_BLOCKS, 1, 1, 64, 1, 1, BK_SHARED_OWN, NULL, attribute, 2};
    const int error = emu_launch_kernel_ex(&c, s->function, params, NULL);
    must(emu_memcpy_dtoh(&t, s->run, sizeof t), "copy");
    const int faults = strchr(steps, 'f') != NULL;
    if (!error && (t.k.state == BK_FAULT) != faults) t.wrong++;
    if (!error && faults) { /* what run.inc does behind a fault */
        memset((char *)&t.k + offsetof(bk_ctx, turn), 0, sizeof t.k - offsetof(bk_ctx, turn));
        must(emu_memcpy_htod(s->run, &t, sizeof t), "copy");
        must(emu_memset_d8(s->words, 0, BK_WORDS_BYTES(TURNS_BLOCKS)), "set");
    }
    return error || t.wrong;
}

/* Any launches after any others. */
static int in_step(void *function) {
    static const char *const steps[] = {"g",  "r",  "",    "b",    "gg",  "rr",
                                        "gr", "rg", "rbg", "brgb", "grf", "rrrrrrrrrrrr"};
    const int n = sizeof steps / sizeof *steps;
    Session s = begin(function);
    int bad = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && !bad; j++) {
            bad = launch(&s, steps[i]) || launch(&s, steps[j]);
            if (bad) printf("'%s', then '%s': %s\n", steps[i], steps[j], emu_last_report());
        }
    end(&s);
    return bad;
}

/* The turns of a block are those of before the last launch. */
static int stale(void *function, const char *steps, unsigned block) {
    Session s = begin(function);
    unsigned kept;
    const uint64_t word = s.words + (BK_WORDS(TURNS_BLOCKS) + block) * sizeof kept;
    int bad = launch(&s, "br");
    must(emu_memcpy_dtoh(&kept, word, sizeof kept), "copy");
    bad |= launch(&s, steps);
    must(emu_memcpy_htod(word, &kept, sizeof kept), "copy");
    if (bad) printf("'%s': %s\n", steps, emu_last_report());
    if (!bad && !launch(&s, "b")) {
        printf("the turns of block %u were forgotten after '%s', and nothing was seen\n", block,
               steps);
        bad = 1;
    }
    end(&s);
    return bad;
}

int main(void) {
    void *context, *module, *function;
    must(emu_init(0), "init");
    must(emu_device_primary_ctx_retain(&context, 0), "context");
    must(emu_ctx_set_current(context), "context");
    must(emu_module_load_data(&module, NULL), "module");
    must(emu_module_get_function(&function, module, "braid_kernel"), "kernel");
    static const char *const schedule[] = {"fair", "random", "adversarial"}, *const steps[] = {
                                                                                 "g", "r", "b"};
    int bad = 0;
    for (int i = 0; i < 3; i++) {
        setenv("BRAID_EMULATE_SCHEDULE", schedule[i], 1);
        bad += in_step(function);
        for (unsigned j = 0; j < 3; j++)
            for (unsigned block = 0; block < TURNS_BLOCKS; block += 3)
                bad += stale(function, steps[j], block);
    }
    must(emu_module_unload(module), "module");
    must(emu_device_primary_ctx_release(0), "context");
    printf("turns: %d failed\n", bad);
    return bad > 0;
}
