// Where the elements of views are: lists of offsets, in the order of the view's elements.
#include "runtime/ops/strided_view.h"

#include <gtest/gtest.h>

#include <functional>

namespace onnxd {
namespace {

using Offsets = std::vector<int64_t>;

Offsets OffsetsOf(const StridedView& view) {
  Offsets offsets{view.offset};
  int64_t count = 1;
  for (const StridedView::Axis& axis : view.axes) {
    for (const StridedView::Factor& factor : axis) {
      Offsets next;
      for (const int64_t offset : offsets) {
        for (int64_t i = 0; i < factor.extent; ++i) next.push_back(offset + i * factor.stride);
      }
      offsets = std::move(next);
      count *= factor.extent;
    }
  }
  EXPECT_EQ(count, view.shape.ElementCount());
  return offsets;
}

struct Through {
  std::string op;
  Attributes attributes;
  std::vector<Tensor> numbers;  // inputs from the second on
};

std::optional<std::vector<StridedView>> Views(const Through& what, const StridedView& in,
                                              const std::vector<Shape>& outputs) {
  Node node;
  node.op_type = what.op;
  node.attributes = what.attributes;
  node.inputs = {0};
  std::vector<const Tensor*> known = {nullptr};
  for (const Tensor& number : what.numbers) {
    node.inputs.push_back(static_cast<ValueId>(known.size()));
    known.push_back(&number);
  }
  std::vector<const Shape*> shapes;
  for (const Shape& shape : outputs) shapes.push_back(&shape);
  node.outputs.resize(outputs.size(), 9);
  return ViewsThrough(node, in, shapes, known);
}

StridedView View(const Through& what, const StridedView& in, const Shape& output) {
  const auto views = Views(what, in, {output});
  EXPECT_TRUE(views.has_value()) << what.op;
  return views ? views->front() : StridedView::Of(output);
}

Attributes With(const std::string& name, Attribute value) {
  Attributes attributes;
  attributes.Set(name, std::move(value));
  return attributes;
}

Tensor Row(std::initializer_list<int64_t> numbers) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(numbers.size())}, numbers);
}

Through Transpose(std::vector<int64_t> order) {
  return {"Transpose", With("perm", std::move(order)), {}};
}

TEST(StridedView, OfATransposition) {
  const StridedView view = View(Transpose({1, 0}), StridedView::Of(Shape{2, 3}), Shape{3, 2});
  EXPECT_EQ(OffsetsOf(view), (Offsets{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(view.IsDense());
  EXPECT_EQ(OffsetsOf(View({"Transpose", {}, {}}, StridedView::Of(Shape{2, 3}), Shape{3, 2})),
            OffsetsOf(view));
}

TEST(StridedView, OfATranspositionOfAxesOfOneElementIsDense) {
  EXPECT_TRUE(
      View(Transpose({1, 0, 2}), StridedView::Of(Shape{1, 4, 3}), Shape{4, 1, 3}).IsDense());
  EXPECT_TRUE(View(Transpose({0, 2, 1, 3}), StridedView::Of(Shape{2, 1, 4, 3}), Shape{2, 4, 1, 3})
                  .IsDense());
}

// Heads of a row are an axis more, wherever the rows are.
TEST(StridedView, OfAReshapeThatSplitsAxesOfATransposition) {
  const StridedView turned = View(Transpose({1, 0}), StridedView::Of(Shape{3, 8}), Shape{8, 3});
  const StridedView split = View({"Reshape", {}, {Row({2, 4, 3})}}, turned, Shape{2, 4, 3});
  EXPECT_EQ(OffsetsOf(split), OffsetsOf(turned));
  EXPECT_EQ(split.Strides(), (std::vector<int64_t>{4, 1, 8}));
}

TEST(StridedView, OfAReshapeThatJoinsAxesWhichFollowEachOther) {
  const StridedView turned =
      View(Transpose({1, 0, 2, 3}), StridedView::Of(Shape{2, 3, 4, 5}), Shape{3, 2, 4, 5});
  const StridedView joined = View({"Reshape", {}, {Row({3, 2, 20})}}, turned, Shape{3, 2, 20});
  EXPECT_EQ(OffsetsOf(joined), OffsetsOf(turned));
  EXPECT_EQ(joined.Strides(), (std::vector<int64_t>{20, 60, 1}));
}

TEST(StridedView, OfAReshapeThatJoinsOthersHasNoStridesUntilTheyArePartedAgain) {
  const StridedView turned =
      View(Transpose({1, 0, 2}), StridedView::Of(Shape{2, 3, 5}), Shape{3, 2, 5});
  const StridedView joined = View({"Reshape", {}, {Row({6, 5})}}, turned, Shape{6, 5});
  EXPECT_EQ(OffsetsOf(joined), OffsetsOf(turned));
  EXPECT_FALSE(joined.Strides().has_value());
  EXPECT_FALSE(joined.IsDense());
  const StridedView moved = View(Transpose({1, 0}), joined, Shape{5, 6});
  const StridedView parted = View({"Reshape", {}, {Row({5, 3, 2})}}, moved, Shape{5, 3, 2});
  EXPECT_EQ(parted.Strides(), (std::vector<int64_t>{1, 5, 15}));
  const StridedView one = View({"Gather", {}, {Row({4})}}, joined, Shape{1, 5});
  EXPECT_EQ(OffsetsOf(one).front(), OffsetsOf(joined)[4 * 5]);
  EXPECT_FALSE(Views({"Reshape", {}, {Row({2, 3, 5})}}, joined, {Shape{2, 3, 5}}).has_value());
  EXPECT_FALSE(Views({"Slice", {}, {Row({1}), Row({3})}}, joined, {Shape{2, 5}}).has_value());
  EXPECT_FALSE(Views({"Split", {}, {}}, joined, {Shape{3, 5}, Shape{3, 5}}).has_value());
}

TEST(StridedView, OfSqueezeUnsqueezeAndFlatten) {
  const StridedView turned =
      View(Transpose({2, 1, 0}), StridedView::Of(Shape{2, 1, 3}), Shape{3, 1, 2});
  for (const Shape& shape : {Shape{3, 2}, Shape{1, 3, 1, 2, 1}}) {
    EXPECT_EQ(OffsetsOf(View({"Unsqueeze", {}, {}}, turned, shape)), OffsetsOf(turned));
    EXPECT_EQ(OffsetsOf(View({"Squeeze", {}, {}}, turned, shape)), OffsetsOf(turned));
  }
  EXPECT_FALSE(View({"Flatten", {}, {}}, turned, Shape{1, 6}).Strides().has_value());
}

TEST(StridedView, OfOneIndex) {
  const StridedView in = StridedView::Of(Shape{2, 3, 4});
  const Attributes axis = With("axis", int64_t{1});
  const StridedView scalar = View({"Gather", axis, {Tensor::Scalar(int64_t{2})}}, in, Shape{2, 4});
  EXPECT_EQ(OffsetsOf(scalar), (Offsets{8, 9, 10, 11, 20, 21, 22, 23}));
  const StridedView row = View({"Gather", axis, {Row({-1})}}, in, Shape{2, 1, 4});
  EXPECT_EQ(OffsetsOf(row), OffsetsOf(scalar));
  EXPECT_TRUE(View({"Gather", {}, {Tensor::Scalar(int64_t{1})}}, in, Shape{3, 4}).IsDense());
  EXPECT_FALSE(Views({"Gather", axis, {Row({0, 1})}}, in, {Shape{2, 2, 4}}).has_value());
  EXPECT_FALSE(Views({"Gather", axis, {Row({3})}}, in, {Shape{2, 1, 4}}).has_value());
}

TEST(StridedView, OfASlice) {
  const StridedView in = StridedView::Of(Shape{4, 6});
  const StridedView view =
      View({"Slice", {}, {Row({1, 2}), Row({4, 6}), Row({0, 1}), Row({2, 3})}}, in, Shape{2, 2});
  EXPECT_EQ(OffsetsOf(view), (Offsets{8, 11, 20, 23}));
  Attributes old = With("starts", std::vector<int64_t>{1});
  old.Set("ends", std::vector<int64_t>{-1});
  EXPECT_EQ(OffsetsOf(View({"Slice", old, {}}, in, Shape{2, 6})).front(), 6);
  const Through backwards{"Slice", {}, {Row({3}), Row({0}), Row({0}), Row({-1})}};
  EXPECT_FALSE(Views(backwards, in, {Shape{3, 6}}).has_value());
}

TEST(StridedView, OfTheParts) {
  const auto views = Views({"Split", With("axis", int64_t{-1}), {}}, StridedView::Of(Shape{2, 6}),
                           {Shape{2, 2}, Shape{2, 3}, Shape{2, 1}});
  ASSERT_TRUE(views.has_value());
  EXPECT_EQ(OffsetsOf((*views)[0]), (Offsets{0, 1, 6, 7}));
  EXPECT_EQ(OffsetsOf((*views)[1]), (Offsets{2, 3, 4, 8, 9, 10}));
  EXPECT_EQ(OffsetsOf((*views)[2]), (Offsets{5, 11}));
}

TEST(StridedView, IsNoneOfWhatIsNotKnownOrHasNoElements) {
  const StridedView in = StridedView::Of(Shape{2, 3});
  Node gather;
  gather.op_type = "Gather";
  gather.inputs = {0, 1};
  gather.outputs = {2};
  const Shape out{3};
  const std::vector<const Shape*> outputs = {&out};
  const std::vector<const Tensor*> known = {nullptr, nullptr};
  EXPECT_FALSE(ViewsThrough(gather, in, outputs, known).has_value());
  EXPECT_FALSE(Views(Transpose({1, 0}), StridedView::Of(Shape{0, 3}), {Shape{3, 0}}).has_value());
}

}  // namespace
}  // namespace onnxd
