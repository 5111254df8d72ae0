// ServiceTimes: how long batches of a model take, learned while it serves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace onnxd {

// Sizes are kept two to an octave: 1, 2, 3, 4, 5-6, 7-8, 9-12, 13-16, ... Guarded by its owner.
class ServiceTimes {
 public:
  // A batch of so many rows took so long.
  void Record(int64_t rows, double seconds);

  // What a batch of so many rows will take: as those of its size did, else on the line through the
  // nearest two sizes that were seen, or in proportion far beyond them. nullopt before the first
  // Record.
  std::optional<double> Expected(int64_t rows) const;
  // What Expected says, but of no more than 64 times the rows of the largest batch seen: what is
  // known so far of larger ones is no reason to refuse them.
  std::optional<double> Believed(int64_t rows) const;

  // The least size up to `most` whose rows are nearly as cheap as any, or up to twice that
  // where such sizes were never or not lately seen: the way to find out. 1 before the first Record.
  int64_t BestSize(int64_t most) const;

  // Within which 19 of 20 lone rows stayed, of the last ones; nullopt before there are 20.
  std::optional<double> LoneP95() const { return lone_p95_; }

 private:
  static constexpr size_t kSizes = 64;
  static constexpr size_t kLoneKept = 64;

  struct Size {
    double seconds_per_row = 0;
    int64_t batches = 0;
    int64_t last = 0;  // total_ when it was last seen
  };

  double FindLoneP95() const;

  std::array<Size, kSizes> sizes_{};
  std::array<double, kLoneKept> lone_{};
  int64_t lone_count_ = 0;
  std::optional<double> lone_p95_;
  int64_t total_ = 0;
  int64_t largest_ = 0;
};

}  // namespace onnxd
