"""Tables through compiled models: a pipeline of scikit-learn, a local Ray, a local Spark."""

import pickle
import sys

import numpy as np
import onnx
import pytest
from support.tables import expected, scores, table

from onnxc.portable import Portable

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    onnx.save(scores(), folder / "one.onnx")
    onnx.save(scores(one_input=False), folder / "three.onnx")
    return folder


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
    from onnxc.errors import RunError

    with pytest.raises(RunError, match="no output 'other' is a tensor; tensors are 'sum', 'scores'"):
        onnxc.spark.udf(Portable(models / "one.onnx"), columns=["a"], output="other")
