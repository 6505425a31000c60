#include "codegen/compile.h"
void compile_emit_cpu(Program *p, const CompileOptions *o, Sb *text) { (void)o; (void)text; err(p->cx->d, ST_UNSUPPORTED, NULL, "cpu"); }
void compile_build_cpu(Diag *d, const char *text_path, const char *so_path, const CompileOptions *o) { (void)text_path; (void)so_path; (void)o; err(d, ST_UNSUPPORTED, NULL, "cpu"); }
