"""Tables through compiled models: a pipeline of scikit-learn, a local Ray, a local Spark."""

import pickle
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.tables import expected, scores, table

from onnxc.errors import RunError
from onnxc.portable import Portable

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    onnx.save(scores(), folder / "one.onnx")
    onnx.save(scores(one_input=False), folder / "three.onnx")
    onnx.save(labels(), folder / "labels.onnx")
    return folder


def labels():
    """`x` [rows, 2] -> `label` [rows] and `maps`, of "p" and "q" for each row, and its columns as `parts`."""
    map_type = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(1, []))
    nodes = [
        helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["p", "q"]),
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]),
        helper.make_value_info("maps", helper.make_sequence_type_proto(map_type)),
        helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None),
    ]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=sets, ir_version=8)


def unary(operator, taken, given, **attributes):
    """`a` [rows] of one type -> `y` of another."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["a"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("a", taken, ["rows"])],
        [helper.make_tensor_value_info("y", given, ["rows"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


# scikit-learn ---------------------------------------------------------------------------------------


def test_a_model_is_a_step_of_a_pipeline(models):
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from onnxc.sklearn import Estimator

    columns = table(6)
    features = np.column_stack(list(columns.values()))
    pipeline = make_pipeline(FunctionTransformer(), Estimator(models / "one.onnx", output="scores"))
    pipeline.fit(features)
    assert np.allclose(pipeline.predict(features), expected(columns)[1], atol=1e-5)
    assert np.allclose(clone(pipeline).transform(features), expected(columns)[1], atol=1e-5)
    assert np.allclose(
        pickle.loads(pickle.dumps(pipeline)).predict(features), expected(columns)[1], atol=1e-5
    )


def test_columns_of_a_frame_are_inputs_by_name_and_columns_of_an_array_by_place(models):
    import pandas

    from onnxc.sklearn import Estimator

    columns = table(6)
    estimator = Estimator(models / "three.onnx", inputs={name: [name] for name in "abc"})
    assert np.allclose(estimator.predict(pandas.DataFrame(columns)), expected(columns)[0], atol=1e-5)
    assert np.allclose(
        estimator.predict_proba(np.column_stack(list(columns.values()))), expected(columns)[1], atol=1e-5
    )


def test_columns_of_a_frame_have_the_axes_of_the_inputs_of_their_names(models):
    import pandas

    from onnxc.sklearn import Estimator

    columns = table(6)
    found = Estimator(models / "three.onnx").predict(pandas.DataFrame(columns))
    assert np.allclose(found, expected(columns)[0], atol=1e-5)


def test_a_list_of_rows_is_an_array(models):
    from onnxc.sklearn import Estimator

    assert Estimator(models / "three.onnx").predict([[1, 2.5, 3], [4, 5, 6]]).tolist() == [6.5, 15]


@pytest.mark.parametrize("rows", [2, 0])
def test_the_probabilities_of_maps_are_an_array_of_the_classes(models, rows):
    from onnxc.sklearn import Estimator

    found = Estimator(models / "labels.onnx").predict_proba(np.ones((rows, 2), np.float32))
    assert found.shape == (rows, 2) and found.dtype == np.float64 and (found == 1).all()


def test_a_pipeline_with_a_model_gives_frames(models):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from onnxc.sklearn import Estimator

    columns = table(6)
    for output, names in (("sum", ["sum"]), ("scores", ["scores0", "scores1"])):
        pipeline = make_pipeline(StandardScaler(), Estimator(models / "one.onnx", output=output))
        frame = pipeline.set_output(transform="pandas").fit_transform(np.column_stack(list(columns.values())))
        assert list(frame.columns) == names and len(frame) == 6


def test_what_is_no_table_and_no_array_of_the_inputs_is_told(models):
    import scipy.sparse

    from onnxc.sklearn import Estimator

    one, three = Estimator(models / "one.onnx"), Estimator(models / "three.onnx")
    for estimator in (one, three):
        with pytest.raises(RunError, match=r"got a csr_matrix; give its toarray\(\)"):
            estimator.predict(scipy.sparse.csr_matrix(np.eye(3)))
    with pytest.raises(RunError, match=r"array of 3 columns, one for each input, got one of shape \[2, 4\]"):
        three.predict(np.ones((2, 4)))
    with pytest.raises(RunError, match="no column 'c'; there are 'a', 'b'"):
        three.predict(np.ones((2, 2)))


def test_an_output_that_is_no_array_is_told(models):
    from onnxc.sklearn import Estimator

    with pytest.raises(RunError, match="the model has no second output, only 'y'"):
        Estimator(unary("Neg", TensorProto.FLOAT, TensorProto.FLOAT)).predict_proba(np.ones(2))
    parts = Estimator(models / "labels.onnx", output="parts")
    with pytest.raises(RunError, match="output 'parts' is a sequence of float32, neither an array nor a map"):
        parts.predict(np.ones((2, 2)))
    with pytest.raises(RunError, match="how many columns the output 'maps' has is known in a run only"):
        Estimator(models / "labels.onnx", output="maps").get_feature_names_out()


# Ray ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_a_dataset_of_ray_gets_the_outputs_as_columns(models, ray):
    import onnxc.ray

    columns = table(1000)
    rows = [{name: float(columns[name][k]) for name in "abc"} for k in range(1000)]
    dataset = ray.data.from_items(rows)
    scored = onnxc.ray.map_batches(dataset, models / "one.onnx", batch_size=128, concurrency=2)
    found = scored.to_pandas().sort_values("a")
    order = np.argsort(columns["a"])
    assert np.allclose(found["sum"], expected(columns)[0][order], atol=1e-5)
    assert np.allclose(np.stack(found["scores"]), expected(columns)[1][order], atol=1e-5)


# Spark ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.mark.parametrize("output", ["sum", "scores"])
def test_a_udf_of_spark_gives_a_number_or_an_array_for_each_row(models, spark, output):
    import pandas

    import onnxc.spark

    columns = table(1000)
    frame = spark.createDataFrame(pandas.DataFrame(columns)).repartition(3)
    score = onnxc.spark.udf(Portable(models / "one.onnx"), columns=["a", "b", "c"], output=output)
    rows = frame.withColumn("found", score("a", "b", "c")).toPandas().sort_values("a")
    order = np.argsort(columns["a"])
    wanted = expected(columns)[output == "scores"][order]
    assert np.allclose(np.stack(rows["found"]), wanted, atol=1e-5)


def test_an_output_that_is_not_there_is_told(models):
    import onnxc.spark

    with pytest.raises(RunError, match="no output 'other' is a tensor; tensors are 'sum', 'scores'"):
        onnxc.spark.udf(Portable(models / "one.onnx"), columns=["a"], output="other")
    with pytest.raises(RunError, match="output 'y' is complex64, and Spark has no complex numbers"):
        onnxc.spark.udf(
            Portable(unary("Identity", TensorProto.COMPLEX64, TensorProto.COMPLEX64), target="native"),
            columns=["a"],
        )


@pytest.mark.parametrize("element", ["BFLOAT16", "FLOAT8E5M2"])
def test_numbers_that_spark_has_not_become_floats(spark, element):
    import onnxc.spark

    frame = spark.createDataFrame([(1.0,), (-2.0,)], ["a"])
    given = TensorProto.DataType.Value(element)
    model = Portable(unary("Cast", TensorProto.FLOAT, given, to=given), target="native")
    found = frame.select(onnxc.spark.udf(model, columns=["a"])("a")).collect()
    assert sorted(value for (value,) in found) == [-2, 1]


def test_rows_of_no_elements_are_rows():
    import onnxc.spark

    assert [row.shape for row in onnxc.spark._rows(np.empty((2, 0)), 2)] == [(0,), (0,)]
    assert onnxc.spark._rows(np.empty((0, 3)), 2) == []
