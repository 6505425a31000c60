/* embed.h: the texts pasted into emitted programs, compiled into the compiler. */
#ifndef BRAID_EMBED_H
#define BRAID_EMBED_H

typedef struct EmbeddedText {
    const char *name, *text;
} EmbeddedText;

extern const EmbeddedText embedded_texts[];  /* ends with name NULL */
const char *embedded_text(const char *name); /* asserts that there is one */

#endif
