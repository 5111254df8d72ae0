// What every device's streams must do with rows within its memory.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/tensor/device_tensor.h"

namespace onnxd {

// Puts columns of one matrix into another one of zeros.
inline void ExpectRowsAreCopiedWithin(Device& device) {
  const auto stream = device.MakeStream();
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  const Tensor numbers = Tensor::Of<float>(Shape{3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const auto from = CopyToDevice(numbers, device, **stream);
  auto to = CopyToDevice(numbers, device, **stream);
  ASSERT_TRUE(from.ok() && to.ok());
  auto* const begin = to->mutable_data<float>();
  // All but the first number and the last.
  ASSERT_TRUE((*stream)->Zero(begin + 1, 10 * sizeof(float)).ok());
  const CopiedRows columns{begin + 2,         3 * sizeof(float), from->data<float>() + 1,
                           4 * sizeof(float), 2 * sizeof(float), 3};
  ASSERT_TRUE((*stream)->CopyRowsWithin(columns).ok());
  ASSERT_TRUE((*stream)->CopyRowsWithin({begin, 8, from->data<float>(), 8, 8, 0}).ok());
  ASSERT_TRUE((*stream)->Zero(begin, 0).ok());
  const auto host = CopyToHost(*to, **stream);
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  EXPECT_THAT(host->elements<float>(), testing::ElementsAre(0, 0, 1, 2, 0, 5, 6, 0, 9, 10, 0, 11));
}

// More than what is brought there at a time.
inline void ExpectMuchBecomesZero(Device& device) {
  const auto stream = device.MakeStream();
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  constexpr int64_t kNumbers = 10'000;
  const std::vector<float> ones(kNumbers, 1.0f);
  auto there = CopyToDevice(Tensor::Of<float>(Shape{kNumbers}, ones), device, **stream);
  ASSERT_TRUE(there.ok());
  ASSERT_TRUE((*stream)->Zero(there->mutable_raw(), (kNumbers - 1) * sizeof(float)).ok());
  const auto host = CopyToHost(*there, **stream);
  ASSERT_TRUE(host.ok()) << host.status().ToString();
  const auto numbers = host->elements<float>();
  EXPECT_THAT(numbers.first(kNumbers - 1), testing::Each(0.0f));
  EXPECT_EQ(numbers.back(), 1.0f);
}

}  // namespace onnxd
