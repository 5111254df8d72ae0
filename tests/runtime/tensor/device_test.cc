// What streams do that leave it to the interface, such as those of plug-ins.
#include "runtime/tensor/device.h"

#include "tests/support/copied_rows.h"
#include "tests/support/fake_device.h"

namespace onnxd {
namespace {

TEST(Stream, CopiesRowsWithin) {
  FakeDevice device;
  ExpectRowsAreCopiedWithin(device);
}

TEST(Stream, MakesMuchZero) {
  FakeDevice device;
  ExpectMuchBecomesZero(device);
}

}  // namespace
}  // namespace onnxd
