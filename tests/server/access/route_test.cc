#include "server/access/route.h"

#include <gtest/gtest.h>

#include "server/access/grant.h"

namespace onnxd {
namespace {

using Path = std::vector<std::string>;

void ExpectRoute(const Path& path, Role role, Scope scope, std::string_view model = "") {
  const std::string text = path.empty() ? "/" : path.back();
  const auto route = RouteOfPath(path);
  ASSERT_TRUE(route) << text;
  EXPECT_EQ(route->role, role) << text;
  EXPECT_EQ(route->scope, scope) << text;
  EXPECT_EQ(route->model, model) << text;
}

TEST(Route, OfEveryPathIsInTheTableAndOtherPathsHaveNone) {
  ExpectRoute({}, Role::kNobody, Scope::kAny);
  ExpectRoute({"predict"}, Role::kPredict, Scope::kAny);
  ExpectRoute({"predict", "m"}, Role::kPredict, Scope::kModel, "m");
  ExpectRoute({"v2", "models", "m", "versions", "1", "infer"}, Role::kPredict, Scope::kModel, "m");
  ExpectRoute({"v2", "models", "m", "generate"}, Role::kPredict, Scope::kModel, "m");
  ExpectRoute({"v2", "models", "m", "config"}, Role::kRead, Scope::kModel, "m");
  ExpectRoute({"v2", "repository", "models", "m", "load"}, Role::kAdmin, Scope::kModel, "m");
  ExpectRoute({"v2", "logging"}, Role::kAdmin, Scope::kServer);
  for (const Path& path : {Path{"v2", "repository"}, Path{"v2/repository", "index"}, Path{"V2"},
                           Path{"predict", "m", "x"}, Path{"v2", "repository", "models", "m"}}) {
    EXPECT_FALSE(RouteOfPath(path));
  }
}

TEST(Route, StatisticsOfAllModelsAreNotThoseOfAModelOfThatName) {
  ExpectRoute({"v2", "models", "stats"}, Role::kRead, Scope::kServer);
  ExpectRoute({"v2", "models", "stats", "stats"}, Role::kRead, Scope::kModel, "stats");
}

TEST(Route, OfAMethodIsInTheTable) {
  const auto load = RouteOfMethod("/inference.GRPCInferenceService/RepositoryModelLoad");
  ASSERT_TRUE(load);
  EXPECT_EQ(load->role, Role::kAdmin);
  EXPECT_EQ(load->scope, Scope::kModel);
  EXPECT_FALSE(RouteOfMethod("/inference.GRPCInferenceService/repositorymodelload"));
}

TEST(Grant, OfSomeModelsIsForCallsAboutTheseAlone) {
  auto key = std::make_shared<ApiKey>();
  key->models = {"m", "x*"};
  const Grant some(key, nullptr), all(nullptr, nullptr);
  for (const std::string_view model : {"m", "x1", "other", ""}) {
    for (const Scope scope : {Scope::kAny, Scope::kModel, Scope::kServer}) {
      EXPECT_TRUE(all.CheckScope(scope, model).ok());
    }
  }
  EXPECT_TRUE(some.CheckScope(Scope::kAny, "").ok());
  EXPECT_TRUE(some.CheckScope(Scope::kModel, "x1").ok());
  EXPECT_EQ(some.CheckScope(Scope::kModel, "other").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(some.CheckScope(Scope::kModel, "").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(some.CheckScope(Scope::kServer, "m").code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace onnxd
