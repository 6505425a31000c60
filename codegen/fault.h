/* fault.h: the message of a fault, with the values that were recorded with it.
 *
 * Pasted into emitted programs in front of entry.h, and compiled into the interpreter: standard C
 * only. In a site's text the characters 1 to 4 stand for the values said[0] to said[3].
 */
#ifndef BK_FAULT_H
#define BK_FAULT_H
#include <stdint.h>
#include <stdio.h>
#define BK_SAID 4
#ifndef BK_UNSAID
#define BK_UNSAID INT64_MIN /* a value that is not known: "?"; the device's text has its own */
#endif

static inline void bk_fault_text(char *to, size_t size, const char *text, const int64_t *said) {
    size_t n = 0;
    for (; *text && n + 1 < size; text++) {
        const int i = *text - 1;
        if (i < 0 || i >= BK_SAID)
            to[n++] = *text;
        else if (said[i] == BK_UNSAID)
            to[n++] = '?';
        else {
            const int k = snprintf(to + n, size - n, "%lld", (long long)said[i]);
            n = k < 0 || (size_t)k >= size - n ? size - 1 : n + (size_t)k;
        }
    }
    if (size) to[n] = 0;
}
#endif
