// The native CPU library. Python calls its functions, all named hm_..., through ctypes.
#define EXPORT extern "C" __attribute__((visibility("default")))

// Changes with the functions and structures below; ABI in library.py must be equal.
EXPORT int hm_version() { return 1; }
