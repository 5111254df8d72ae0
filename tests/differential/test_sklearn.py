"""What skl2onnx writes for scikit-learn's estimators gives onnxruntime's outputs."""

import unittest
import warnings

import numpy
import pandas
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn import (calibration, cluster, compose, cross_decomposition, datasets, decomposition, discriminant_analysis,
                     ensemble, feature_extraction, feature_selection, gaussian_process, impute, isotonic, kernel_approximation,
                     kernel_ridge, linear_model, mixture, multiclass, multioutput, naive_bayes, neighbors, neural_network,
                     pipeline, preprocessing, random_projection, svm, tree)

import oracle

warnings.filterwarnings("ignore")
IRIS = datasets.load_iris(return_X_y=True)
DIABETES = datasets.load_diabetes(return_X_y=True)
BINARY = (IRIS[0][:100], IRIS[1][:100])
NAMES = numpy.array(["setosa", "versicolor", "virginica"])
ROWS = 30

# What cannot be compared, by the converter's or onnxruntime's own failure.
GAPS = {
    "hist_gradient_boosting": "TreeEnsemble",  # skl2onnx 1.20 writes an attribute that onnx refuses
    "radius": "ArrayFeatureExtractor",  # onnxruntime refuses the graph that skl2onnx writes
    "nearest_centroid": "shape calculator",
    "gaussian_process": "Only binary classification",
    "gaussian_process of two classes": "Solve",  # an operator that nobody has
    "kernel_ridge": "shape calculator",
    "target": "shape calculator",
    "fast_ica": "shape calculator",
}


def classifiers():
    yield "logistic", linear_model.LogisticRegression(max_iter=500)
    yield "logistic_cv", linear_model.LogisticRegressionCV(max_iter=500, cv=3)
    yield "ridge_classifier", linear_model.RidgeClassifier()
    yield "perceptron", linear_model.Perceptron(random_state=0)
    yield "sgd_log", linear_model.SGDClassifier(loss="log_loss", random_state=0)
    yield "sgd_hinge", linear_model.SGDClassifier(random_state=0)
    yield "passive_aggressive", linear_model.PassiveAggressiveClassifier(random_state=0)
    yield "lda", discriminant_analysis.LinearDiscriminantAnalysis()
    yield "qda", discriminant_analysis.QuadraticDiscriminantAnalysis()
    yield "gaussian_nb", naive_bayes.GaussianNB()
    yield "multinomial_nb", naive_bayes.MultinomialNB()
    yield "complement_nb", naive_bayes.ComplementNB()
    yield "bernoulli_nb", naive_bayes.BernoulliNB(binarize=2.0)
    yield "tree", tree.DecisionTreeClassifier(random_state=0)
    yield "extra_tree", tree.ExtraTreeClassifier(random_state=0)
    yield "forest", ensemble.RandomForestClassifier(n_estimators=10, random_state=0)
    yield "extra_trees", ensemble.ExtraTreesClassifier(n_estimators=10, random_state=0)
    yield "gradient_boosting", ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0)
    yield "hist_gradient_boosting", ensemble.HistGradientBoostingClassifier(max_iter=10, random_state=0)
    yield "ada_boost", ensemble.AdaBoostClassifier(n_estimators=5, random_state=0)
    yield "bagging", ensemble.BaggingClassifier(n_estimators=4, random_state=0)
    yield "voting_soft", ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression(max_iter=500)), ("b", tree.DecisionTreeClassifier(random_state=0))], voting="soft", flatten_transform=False)
    yield "voting_hard", ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression(max_iter=500)), ("b", tree.DecisionTreeClassifier(random_state=0))], flatten_transform=False)
    yield "stacking", ensemble.StackingClassifier(
        [("a", linear_model.LogisticRegression(max_iter=500)), ("b", tree.DecisionTreeClassifier(random_state=0))])
    yield "knn", neighbors.KNeighborsClassifier(3)
    yield "radius", neighbors.RadiusNeighborsClassifier(2.0)
    yield "nearest_centroid", neighbors.NearestCentroid()
    yield "mlp", neural_network.MLPClassifier(hidden_layer_sizes=(8,), max_iter=300, random_state=0)
    yield "svc_rbf", svm.SVC(probability=True, random_state=0)
    yield "svc_linear", svm.SVC(kernel="linear")
    yield "svc_poly", svm.SVC(kernel="poly", degree=2)
    yield "svc_sigmoid", svm.SVC(kernel="sigmoid")
    yield "nu_svc", svm.NuSVC(nu=0.3)
    yield "linear_svc", svm.LinearSVC()
    yield "gaussian_process", gaussian_process.GaussianProcessClassifier(random_state=0)
    yield "one_vs_rest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    yield "one_vs_one", multiclass.OneVsOneClassifier(linear_model.LogisticRegression())
    yield "calibrated", calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2)
    yield "isotonic_calibrated", calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2, method="isotonic")


def regressors():
    yield "linear", linear_model.LinearRegression()
    yield "ridge", linear_model.Ridge()
    yield "lasso", linear_model.Lasso(0.01)
    yield "elastic_net", linear_model.ElasticNet(0.01)
    yield "bayesian_ridge", linear_model.BayesianRidge()
    yield "ard", linear_model.ARDRegression()
    yield "huber", linear_model.HuberRegressor()
    yield "ransac", linear_model.RANSACRegressor(random_state=0)
    yield "theil_sen", linear_model.TheilSenRegressor(random_state=0, max_subpopulation=100)
    yield "poisson", linear_model.PoissonRegressor()
    yield "gamma", linear_model.GammaRegressor()
    yield "tweedie", linear_model.TweedieRegressor(power=1.5)
    yield "quantile", linear_model.QuantileRegressor(solver="highs")
    yield "lars", linear_model.Lars()
    yield "omp", linear_model.OrthogonalMatchingPursuit()
    yield "sgd", linear_model.SGDRegressor(random_state=0)
    yield "tree", tree.DecisionTreeRegressor(max_depth=5, random_state=0)
    yield "extra_tree", tree.ExtraTreeRegressor(max_depth=5, random_state=0)
    yield "forest", ensemble.RandomForestRegressor(n_estimators=5, random_state=0)
    yield "extra_trees", ensemble.ExtraTreesRegressor(n_estimators=5, random_state=0)
    yield "gradient_boosting", ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0)
    yield "hist_gradient_boosting", ensemble.HistGradientBoostingRegressor(max_iter=10, random_state=0)
    yield "ada_boost", ensemble.AdaBoostRegressor(n_estimators=5, random_state=0)
    yield "bagging", ensemble.BaggingRegressor(n_estimators=4, random_state=0)
    yield "voting", ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=4))])
    yield "stacking", ensemble.StackingRegressor([("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=4))])
    yield "knn", neighbors.KNeighborsRegressor(4)
    yield "knn_distance", neighbors.KNeighborsRegressor(4, weights="distance")
    yield "radius_regressor", neighbors.RadiusNeighborsRegressor(2.0)
    yield "mlp", neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=200, random_state=0)
    yield "svr_rbf", svm.SVR()
    yield "svr_linear", svm.SVR(kernel="linear")
    yield "nu_svr", svm.NuSVR()
    yield "linear_svr", svm.LinearSVR(random_state=0)
    yield "gaussian_process_regressor", gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(1.0) + gaussian_process.kernels.WhiteKernel())
    yield "kernel_ridge", kernel_ridge.KernelRidge()
    yield "pls", cross_decomposition.PLSRegression()
    yield "target", compose.TransformedTargetRegressor(linear_model.Ridge())
    yield "multi_output", multioutput.MultiOutputRegressor(linear_model.Ridge())


def transformers():
    yield "standard_scaler", preprocessing.StandardScaler()
    yield "robust_scaler", preprocessing.RobustScaler()
    yield "min_max_scaler", preprocessing.MinMaxScaler(clip=True)
    yield "max_abs_scaler", preprocessing.MaxAbsScaler()
    yield "normalizer_l1", preprocessing.Normalizer("l1")
    yield "normalizer_l2", preprocessing.Normalizer("l2")
    yield "normalizer_max", preprocessing.Normalizer("max")
    yield "binarizer", preprocessing.Binarizer(threshold=2.0)
    yield "polynomial", preprocessing.PolynomialFeatures(2)
    yield "power", preprocessing.PowerTransformer()
    yield "quantile_transformer", preprocessing.QuantileTransformer(n_quantiles=20, random_state=0)
    yield "bins_onehot", preprocessing.KBinsDiscretizer(4, encode="onehot-dense")
    yield "bins_ordinal", preprocessing.KBinsDiscretizer(4, encode="ordinal")
    yield "pca", decomposition.PCA(2)
    yield "incremental_pca", decomposition.IncrementalPCA(2)
    yield "kernel_pca", decomposition.KernelPCA(2, kernel="rbf")
    yield "truncated_svd", decomposition.TruncatedSVD(2)
    yield "fast_ica", decomposition.FastICA(2, random_state=0)
    yield "select_k_best", feature_selection.SelectKBest(k=2)
    yield "select_percentile", feature_selection.SelectPercentile(percentile=50)
    yield "variance_threshold", feature_selection.VarianceThreshold(0.5)
    yield "rfe", feature_selection.RFE(linear_model.LogisticRegression(max_iter=500), n_features_to_select=2)
    yield "random_projection", random_projection.GaussianRandomProjection(2, random_state=0)
    yield "kmeans", cluster.KMeans(3, n_init=1, random_state=0)
    yield "mini_batch_kmeans", cluster.MiniBatchKMeans(3, n_init=1, random_state=0)
    yield "gaussian_mixture", mixture.GaussianMixture(2, random_state=0)
    yield "bayesian_mixture", mixture.BayesianGaussianMixture(n_components=2, random_state=0)
    yield "isolation_forest", ensemble.IsolationForest(n_estimators=5, random_state=0)
    yield "local_outlier", neighbors.LocalOutlierFactor(n_neighbors=5, novelty=True)
    yield "one_class_svm", svm.OneClassSVM()
    yield "knn_imputer", impute.KNNImputer()
    yield "random_trees_embedding", ensemble.RandomTreesEmbedding(n_estimators=3, sparse_output=False, random_state=0)
    yield "pipeline", pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2), linear_model.LogisticRegression())
    yield "union", pipeline.make_union(preprocessing.StandardScaler(), preprocessing.MinMaxScaler())


class ScikitLearn(unittest.TestCase):
    def compare(self, name, estimator, x, feeds=None, types=None, outputs=None, **options):
        # Beside the rows of the training data, which are exactly on some borders.
        feeds = feeds or {"X": (x[:ROWS] + 0.03).astype(numpy.float32)}
        with self.subTest(estimator=name):
            try:
                model = to_onnx(estimator, initial_types=types or [("X", FloatTensorType([None, x.shape[1]]))], **options)
                outputs = outputs or oracle.expected_outputs(model, feeds)
            except Exception as error:
                self.assertIn(name, GAPS, error)
                self.assertIn(GAPS[name], str(error))
                return
            self.assertNotIn(name, GAPS, "it converts now: remove it from GAPS")
            oracle.assert_same(self, model, feeds, rtol=1e-3, atol=1e-4, outputs=outputs)

    def compare_classifiers(self, data, suffix=""):
        for name, estimator in classifiers():
            estimator.fit(*data)
            options = {} if name == "linear_svc" else {"options": {type(estimator): {"zipmap": False}}}
            self.compare(name + suffix if name + suffix in GAPS else name, estimator, data[0], **options)

    def test_classifiers(self):
        self.compare_classifiers(IRIS)

    def test_binary_classifiers(self):
        self.compare_classifiers(BINARY, " of two classes")

    def test_string_labels_and_maps(self):
        for name, estimator in classifiers():
            if name in ("logistic", "forest", "svc_rbf", "knn", "mlp", "gaussian_nb", "voting_soft", "one_vs_rest"):
                self.compare(name, estimator.fit(IRIS[0], NAMES[IRIS[1]]), IRIS[0])

    def test_columns_of_probabilities(self):
        estimator = linear_model.LogisticRegression(max_iter=500).fit(IRIS[0], NAMES[IRIS[1]])
        self.compare("logistic", estimator, IRIS[0], options={type(estimator): {"zipmap": "columns"}})

    def test_regressors(self):
        for name, estimator in regressors():
            y = numpy.stack([DIABETES[1], -DIABETES[1]], 1) if name == "multi_output" else DIABETES[1]
            self.compare(name, estimator.fit(DIABETES[0], y / 100), DIABETES[0])

    def test_transformers(self):
        for name, estimator in transformers():
            options = {"target_opset": {"": 15, "ai.onnx.ml": 3}} if name == "isolation_forest" else {}
            self.compare(name, estimator.fit(*IRIS), IRIS[0], **options)

    def test_text(self):
        texts = ["the quick brown fox", "jumps over the lazy dog", "The dog barks", "fox and dog, dog and fox", "x"]
        feeds = {"X": numpy.array(texts, object).reshape(-1, 1)}
        for name, estimator in (
                ("count", feature_extraction.text.CountVectorizer()),
                ("count_bigrams", feature_extraction.text.CountVectorizer(ngram_range=(1, 2))),
                ("count_case", feature_extraction.text.CountVectorizer(lowercase=False, stop_words=["the"])),
                ("tfidf", feature_extraction.text.TfidfVectorizer()),
                ("tfidf_sublinear", feature_extraction.text.TfidfVectorizer(sublinear_tf=True, norm="l1")),
                ("characters", feature_extraction.text.CountVectorizer(analyzer="char", ngram_range=(1, 2)))):
            options = {} if name == "characters" else {"options": {type(estimator): {"tokenexp": "[a-zA-Z0-9_]+"}}}
            # scikit-learn's own answer: onnxruntime needs a locale that small machines do not have.
            outputs = [estimator.fit(texts).transform(texts).toarray().astype(numpy.float32)]
            self.compare(name, estimator, None, feeds, [("X", StringTensorType([None, 1]))], outputs, **options)

    def test_columns_of_text_and_numbers(self):
        random = numpy.random.default_rng(0)
        city = random.choice(["Berlin", "Paris", "Rome"], 60)
        floor = random.integers(0, 4, 60)
        size = random.normal(70, 20, 60).astype(numpy.float32)
        price = size * 10 + floor * 3 + (city == "Rome") * 50
        columns = compose.ColumnTransformer([
            ("city", preprocessing.OneHotEncoder(handle_unknown="ignore"), [0]),
            ("rank", preprocessing.OrdinalEncoder(), [1]),
            ("size", pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler()), [2])])
        frame = pandas.DataFrame({"city": city, "floor": floor, "size": size})
        model = pipeline.make_pipeline(columns, ensemble.RandomForestRegressor(n_estimators=4, random_state=0))
        types = [("city", StringTensorType([None, 1])), ("floor", Int64TensorType([None, 1])), ("size", FloatTensorType([None, 1]))]
        feeds = {"city": city.astype(object)[:20, None], "floor": floor[:20, None], "size": size[:20, None]}
        feeds["city"][3, 0] = "Oslo"
        feeds["size"][4, 0] = numpy.nan
        self.compare("columns", model.fit(frame, price), None, feeds, types)


if __name__ == "__main__":
    unittest.main()
