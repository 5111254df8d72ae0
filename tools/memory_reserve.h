// What happens when operator new is refused.
#pragma once

namespace onnxd {

// From now on a refused operator new is tried again: once with a reserve given back first, then a
// few times while others may free theirs, before it throws. The standard library's folders end the
// process where they meet std::bad_alloc; this leaves them what little they need.
void KeepMemoryReserve();

// Fills the reserve again. Now and then, by one thread.
void RefillMemoryReserve();

}  // namespace onnxd
