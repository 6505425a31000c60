/* embed.h: the texts that are pasted into emitted programs, as strings in the compiler. */
#ifndef BRAID_EMBED_H
#define BRAID_EMBED_H

typedef struct EmbeddedText {
    const char *name, *text;
} EmbeddedText;

extern const EmbeddedText embedded_texts[];  /* the last entry has name NULL */
const char *embedded_text(const char *name); /* dies if there is none of this name */

#endif
