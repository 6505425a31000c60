/* cmd_device.c: braid device: prints and imports costs of devices. */
#include "cli/costs.h"
#include "codegen/build/calibrate.h"
#include "api/runtime.h"

/* The costs of `target`: measured ones if there are any, else published ones. */
static Device known(const char *target) {
    Device d = {0};
    Store *s = rt_store(&(braid_options){0}, false);
    device_calibrated(&(CompileOptions){.target = target}, s, false, &d);
    store_close(s);
    return d;
}

static void print_devices(void) {
    printf("%-13s %-9s %5s %7s %8s %6s %7s %10s %7s %7s %7s\n", "target", "costs", "cores",
           "threads", "GFLOP/s", "GB/s", "core ns", "cluster ns", "team ns", "core KB", "team KB");
    for (int i = 0; device_at(i); i++) {
        Device d = known(device_at(i)->name);
        char cluster[16] = "";
        const DeviceLevel *l = d.level;
        if (l[LEVEL_CLUSTER].name)
            snprintf(cluster, sizeof cluster, "%.0f", l[LEVEL_CLUSTER].barrier_ns);
        printf("%-13s %-9s %5d %7d %8.0f %6.1f %7.0f %10s %7.0f %7lld %7lld\n", d.name,
               d.measured ? "measured" : "published", d.units ? d.units : compile_cpus(),
               d.threads ? d.threads : 1, d.gflops, d.dram_gbps, l[LEVEL_CORE].barrier_ns, cluster,
               l[LEVEL_TEAM].barrier_ns, (long long)l[LEVEL_CORE].bytes >> 10,
               (long long)l[LEVEL_TEAM].bytes >> 10);
    }
    printf("\ncores: multiprocessors of a GPU. For one core: threads, float32 GFLOP/s, GB/s of "
           "memory.\nns: a barrier of a core's threads, of a cluster, of all cores (team).\n"
           "KB: memory near a core and near all cores (of a GPU: shared memory and L2).\n");
}

static void print_device(const Device *d) {
    const Device *row = device_find(d->name);
    const DeviceNumber *n;
    printf("%s: %s costs\n%-20s %12s %12s\n", d->name, d->measured ? "measured" : "published", "",
           "published", d->measured ? "measured" : "");
    for (int i = 0; (n = device_number(i)); i++) {
        if (device_get(row, n) == 0) continue;
        printf("%-20s %12.10g", n->name, device_get(row, n));
        if (d->measured) printf(" %12.10g", device_get(d, n));
        printf("\n");
    }
}

static void print_json(const Device *d) {
    const DeviceNumber *n;
    int count = 0;
    printf("{\"target\": \"%s\", \"measured\": %s, \"costs\": {", d->name,
           d->measured ? "true" : "false");
    for (int i = 0; (n = device_number(i)); i++)
        if (device_get(d, n) != 0)
            printf("%s\"%s\": %.9g", count++ ? ", " : "", n->name, device_get(d, n));
    printf("}}\n");
}

/* Keeps the measured costs of a file: the scheduler uses them from now on. */
static int import(const Cli *c) {
    Device d;
    int code = cli_costs(c->import, c->narg ? c->arg[0] : NULL, &d);
    if (code) return code;
    if (!device_is_gpu(&d))
        return cli_fail(c->import,
                        "the costs of %s cannot be imported: the first compilation measures them",
                        d.name);
    Store *s = rt_store(&(braid_options){0}, true);
    bool kept = store_keep_device(s, d.name, &d);
    store_close(s);
    if (!kept) return cli_fail(c->import, "the costs cannot be kept in the cache");
    print_device(&d);
    return EXIT_DONE;
}

int cmd_device(const Cli *c) {
    const char *target = c->narg ? c->arg[0] : NULL;
    if (target && !device_find(target))
        return cli_usage("there is no device '%s' (braid device lists them)", target);
    if (c->import) return import(c);
    if (!target && c->json) return cli_usage("--json needs a TARGET");
    if (!target)
        print_devices();
    else {
        Device d = known(target);
        if (c->json)
            print_json(&d);
        else
            print_device(&d);
    }
    return EXIT_DONE;
}
