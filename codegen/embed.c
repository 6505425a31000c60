/* embed.c: finds an embedded text by its name. */
#include "codegen/embed.h"
#include "base/base.h"

const char *embedded_text(const char *name) {
    for (const EmbeddedText *t = embedded_texts; t->name; t++)
        if (!strcmp(t->name, name)) return t->text;
    die("no embedded text %s", name);
}
