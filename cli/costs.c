/* costs.c: reads a device's measured costs from a JSON file.
 *
 * The form is that of eval/gpu/machine.cu and `braid device --json`. Other members are ignored.
 *     {"target": "cuda:sm_90", "costs": {"team_barrier_ns": 1400, ...}, ...}
 */
#include <errno.h>
#include <jansson.h>

#include "cli/costs.h"

/* Replaces numbers of *d by those in `costs`. */
static int use(const char *path, json_t *costs, Device *d) {
    const char *name;
    json_t *value;
    if (json_object_size(costs) == 0) return cli_fail(path, "there are no \"costs\"");
    json_object_foreach(costs, name, value) {
        const DeviceNumber *n = device_number_find(name);
        if (!n) return cli_fail(path, "there is no cost '%s'", name);
        double v = json_number_value(value), row = device_get(d, n);
        if (!(v > 0)) return cli_fail(path, "%s is not a positive number", name);
        if (row == 0) return cli_fail(path, "%s has no %s", d->name, name);
        if (v < row / DEVICE_FACTOR || v > row * DEVICE_FACTOR)
            return cli_fail(path, "%s is %g, too far from the published %g to be believed", name, v,
                            row);
        device_set(d, n, v);
    }
    d->measured = true;
    return EXIT_DONE;
}

int cli_costs(const char *path, const char *target, Device *d) {
    json_error_t e;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!file)
        return e.line < 0 ? cli_fail(path, "%s", strerror(errno))
                          : cli_fail(path, "not JSON: line %d: %s", e.line, e.text);
    const char *of = json_string_value(json_object_get(file, "target"));
    if (!target) target = of ? of : "";
    const Device *row = device_find(target);
    int code;
    if (of && strcmp(of, target) != 0)
        code = cli_fail(path, "these are costs of %s, not of %s", of, target);
    else if (!row)
        code = cli_fail(path, "there is no device '%s' (braid device lists them)", target);
    else {
        *d = *row;
        code = use(path, json_object_get(file, "costs"), d);
    }
    json_decref(file);
    return code;
}
