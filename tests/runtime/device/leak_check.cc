// On processors with AMX the tracer of GCC 12's LeakSanitizer crashes at the end of some tests with
// OpenCL devices ("Tracer caught signal 11"), whatever they do: leaks are looked for on all others.
#if defined(__x86_64__) && defined(__SANITIZE_ADDRESS__)
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return __builtin_cpu_supports("amx-tile") ? 1 : 0; }
#endif
