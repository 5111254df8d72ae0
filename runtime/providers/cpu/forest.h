// Trees of comparisons, laid out to be walked several at a time: what the operators TreeEnsemble,
// TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml compute before they label.
//
// A walk takes no branch that the data decide. Three levels at a time make a block, of whose seven
// comparisons follows by which of eight exits a row leaves. A leaf leads on to the next tree, so
// that trees of different depths keep no one waiting, and eight trees at once hide each other's
// latency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/math/tree_block.h"

namespace onnxd {

// By the numbers of TreeEnsemble-5's nodes_modes.
enum class TreeMode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };

// By the numbers of TreeEnsemble-5's aggregate_function.
enum class TreeAggregate : uint8_t { kAverage, kSum, kMin, kMax };

// Trees as the attributes of a node describe them. T: float or double, in which values compare.
template <typename T>
struct TreeList {
  struct Branch {
    int64_t next = 0;  // an index into leaves or nodes
    bool leaf = false;
  };
  struct Node {
    TreeMode mode = TreeMode::kLeq;
    bool missing_tracks_true = false;  // NaN takes `yes`; else what the mode says of NaN
    int64_t feature = 0;               // the column that is compared
    T split = 0;
    Branch yes, no;
    std::vector<T> members;  // of kMember
  };
  struct Weight {
    int64_t target = 0;
    T value = 0;
  };
  struct Leaf {
    int64_t begin = 0, end = 0;  // of its weights
  };
  std::vector<Branch> roots;
  std::vector<Node> nodes;
  std::vector<Leaf> leaves;
  std::vector<Weight> weights;
  int64_t targets = 1;
  TreeAggregate aggregate = TreeAggregate::kSum;
};

// Immutable and shared between threads.
template <typename T>
class Forest {
 public:
  // kInvalidArgument for an index out of range, and for a node that is reached twice. Nodes that no
  // root reaches are left out.
  static Result<Forest> Make(const TreeList<T>& list);

  int64_t targets() const { return targets_; }
  int64_t features() const { return features_; }  // the columns that a row has at least
  int64_t nodes() const { return reached_; }      // of the list, that a root reaches
  int64_t trees() const { return trees_; }

  // scores: [count, targets], of rows: [count, width], width at least features(). Sums are sums of
  // doubles. A target that no reached leaf gives a weight scores 0.
  void Score(const T* rows, int64_t count, int64_t width, double* scores) const;

 private:
  template <typename>
  friend class ForestBuilder;

  static constexpr size_t kMostInGroup = 512;  // trees

  using Block = math::TreeBlock<T>;
  struct alignas(math::kTreeExitBytes) Exits {  // of one line of the cache
    math::TreeExit exits[math::kTreeExits];
  };
  // Trees whose blocks stay in a core's cache while rows are walked.
  struct Group {
    uint32_t roots[math::kTreeLanes];  // of the first tree of each lane
  };
  struct Weight {
    int64_t target;
    T value;
  };
  struct Rows {
    const T* data;
    int64_t count, width;
    const T* At(int64_t row) const { return data + row * width; }
  };
  class Walker;
  template <typename Test>
  class NodeWalker;
  class BlockWalker;

  template <typename Test, typename RowOf, typename Leaves>
  void Walk(const uint32_t* roots, const RowOf& row_of, Leaves& leaves) const;
  void AddScores(const Rows& rows, double* scores) const;
  void AddScores(const Rows& rows, const Walker& walker, double* scores) const;
  void AddSums(const Rows& rows, const Walker& walker, double* scores) const;
  bool AreFew(const Rows& rows) const;
  template <typename Weights>
  void AddByTrees(const Rows& rows, const Walker& walker, const Weights& weights,
                  double* scores) const;
  template <typename Weights>
  void AddByRows(const Rows& rows, const Walker& walker, const Weights& weights,
                 double* scores) const;

  int64_t targets_ = 1, features_ = 0, reached_ = 0, trees_ = 0;
  TreeAggregate aggregate_ = TreeAggregate::kSum;
  bool all_less_ = true, all_leq_ = true;  // that is what the nodes ask of numbers
  bool missing_ = false;                   // some say yes to NaN
  std::vector<Block> blocks_;
  std::vector<Exits> exits_;  // of each block
  std::vector<Group> groups_;
  // The weights of leaf i: one float in exits, or row i of dense_, or weights_ from ranges_[i] to
  // ranges_[i + 1].
  bool exits_have_weights_ = false;
  int row_ = 0;  // 1, 4 or 8 numbers; 0: not dense
  std::vector<T> dense_;
  bool one_each_ = false;  // weight i is leaf i's
  std::vector<uint32_t> ranges_;
  std::vector<Weight> weights_;
};

}  // namespace onnxd
