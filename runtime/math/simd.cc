#include "runtime/math/simd.h"

#include <atomic>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace onnxd::math {

const Simd& BaselineSimd();
#if defined(__x86_64__)
const Simd& Avx2Simd();
const Simd& Avx512Simd();
const Simd& Avx512VnniSimd();
const Simd& AmxSimd();
#endif

namespace {

#if defined(__x86_64__)
// Whether the kernel lets this process use the registers of tiles: it asks to be asked, since they
// make each thread's saved state larger by 8 KB (Linux, Documentation/arch/x86/xstate.rst).
bool MayUseTiles() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool may = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
#else
  return false;
#endif
}
#endif

#if defined(__x86_64__)
// What not every compiler's __builtin_cpu_supports knows by name (Intel SDM, volume 2, CPUID).
bool HasHalfConversions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

bool HasTiles() {
  constexpr unsigned kBfloat16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & (kBfloat16 | kTile | kInt8)) == (kBfloat16 | kTile | kInt8);
}
#endif

bool Supports(std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx2") {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasHalfConversions();
  }
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (name == "avx512vnni") return Supports("avx512") && __builtin_cpu_supports("avx512vnni");
  if (name == "amx") {
    return Supports("avx512vnni") && HasTiles() && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vbmi") && MayUseTiles();
  }
#endif
  return name == "baseline";
}

const Simd* Best() {
#if defined(__x86_64__)
  if (Supports("amx")) return &AmxSimd();
  if (Supports("avx512vnni")) return &Avx512VnniSimd();
  if (Supports("avx512")) return &Avx512Simd();
  if (Supports("avx2")) return &Avx2Simd();
#endif
  return &BaselineSimd();
}

std::atomic<const Simd*>& Chosen() {
  static std::atomic<const Simd*> chosen{Best()};
  return chosen;
}

}  // namespace

const Simd& CurrentSimd() { return *Chosen().load(std::memory_order_relaxed); }

bool SetSimd(std::string_view name) {
  if (!Supports(name)) return false;
  const Simd* simd = &BaselineSimd();
#if defined(__x86_64__)
  if (name == "avx2") simd = &Avx2Simd();
  if (name == "avx512") simd = &Avx512Simd();
  if (name == "avx512vnni") simd = &Avx512VnniSimd();
  if (name == "amx") simd = &AmxSimd();
#endif
  SetSimd(*simd);
  return true;
}

void SetSimd(const Simd& simd) { Chosen().store(&simd, std::memory_order_relaxed); }

}  // namespace onnxd::math
