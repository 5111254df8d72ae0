#include "server/config/provider_settings.h"

namespace onnxd {

const std::vector<OptionKey<ProviderDeviceSettings>>& ProviderDeviceKeys() {
  using P = ProviderDeviceSettings;
  static const std::vector<OptionKey<P>> keys = {
      NumberKey("device_id", &P::device_id, 0, 1023),
      NumberKey("gpu_mem_limit", &P::gpu_mem_limit, 0, int64_t{1} << 50, "bytes"),
      NumberKey("stream_priority", &P::stream_priority, -100, 100),
  };
  return keys;
}

}  // namespace onnxd
