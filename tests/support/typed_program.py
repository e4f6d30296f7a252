"""A program that uses every public name of onnxc, for the type checker: nothing runs it."""

import asyncio
import logging

import numpy as np

import onnxc
import onnxc.onnxruntime as ort

SAME: tuple[onnxc.Model | None, str] = (None, onnxc.__version__)


@onnxc.operator("my.domain", outputs="Y")
def Clamp(b, X, *, low: float = 0.0):  # type: ignore[no-untyped-def]
    return b.map(X, lambda x: x.clip(low, 6.0))


def compiled(path: str) -> onnxc.Model:
    library = onnxc.compile(
        path,
        "out.so",
        dims={"n": 1},
        values={"sr": 16000},
        overridable=["w"],
        precision="bf16",
        jobs=2,
        progress=logging.getLogger().info,
    )
    with onnxc.load(library, threads=1) as model:
        print(
            onnxc.get_include(), model.inputs[0].name, model.metadata.get("x"), model.profile({"x": 1})[0].ns
        )
        memory = {"y": np.zeros(3, np.float32)}
        results: list[object] = asyncio.run(model.run_async(None, {"x": np.zeros(3)}, memory))
        print(results, model(x=1.0), model.workspace_bytes({"x": (3,)}), model.bind().outputs["y"].shape)
        model.stateful(capacity=8)
        return model


def use(path: str) -> list[object]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.execution_order = ort.ExecutionOrder.DEFAULT
    options.add_free_dimension_override_by_name("n", 1)
    session: onnxc.InferenceSession = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    run_options = ort.RunOptions()
    run_options.terminate = False
    value: ort.OrtValue = ort.OrtValue.ortvalue_from_numpy(np.zeros(3))
    binding: ort.IOBinding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    session.run_with_iobinding(binding)
    ort.copy_tensors([value], [value])
    device = ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_coo_from_numpy([4], np.ones(1), np.ones(1, np.int64), device)
    print(sparse.format() == ort.OrtSparseFormat.ORT_SPARSE_COO, session.get_modelmeta().version)
    arguments: list[ort.NodeArg] = session.get_inputs()
    names: list[str] = [argument.name for argument in arguments]
    session.run_async(names, {"x": value}, lambda results, data, error: print(results, data, error), None)
    try:
        return session.run(names, {"x": value.numpy()}, run_options)
    except onnxc.ModelErrors as errors:
        print([problem.reason for problem in errors.diagnostics])
    except (onnxc.RunError, onnxc.LoadError, onnxc.CompileError, onnxc.LimitError) as error:
        print(error.reason, error.origin.node, ort.get_available_providers(), ort.install().__name__)
    except (onnxc.UnsupportedError, onnxc.ModelError) as error:
        raise onnxc.OnnxcError("no") from error
    ort.set_default_logger_callback(None)
    ort.set_default_logger_severity(3)
    ort.set_default_logger_verbosity(0)
    ort.set_global_thread_pool_sizes(2, 1)
    ort.set_seed(1)
    texts: list[str] = [ort.get_device(), ort.get_version_string(), ort.get_build_info(), ort.version]
    return [*texts, ort.__version__, ort.package_name, ort.cuda_version, ort.has_collective_ops()]


OTHERS: list[object] = [
    ort.AdapterFormat,
    ort.LoraAdapter,
    ort.ModelCompiler,
    ort.ModelMetadata,
    ort.ModelPackage,
    ort.ModelPackageComponentContext,
    ort.ModelPackageContext,
    ort.ModelPackageOptions,
    ort.ModelPackageWriteMode,
    ort.OrtAllocatorType,
    ort.OrtArenaCfg,
    ort.OrtCompileApiFlags,
    ort.OrtDeviceMemoryType,
    ort.OrtDeviceVendorId,
    ort.OrtEpAssignedNode,
    ort.OrtEpAssignedSubgraph,
    ort.OrtEpContextData,
    ort.OrtEpContextDataBuffer,
    ort.OrtEpDevice,
    ort.OrtExecutionProviderDevicePolicy,
    ort.OrtExternalInitializerInfo,
    ort.OrtHardwareDevice,
    ort.OrtHardwareDeviceType,
    ort.OrtMemType,
    ort.OrtMemoryInfo,
    ort.OrtMemoryInfoDeviceType,
    ort.OrtSyncStream,
    ort.SessionIOBinding,
    ort.capi,
    ort.create_and_register_allocator,
    ort.create_and_register_allocator_v2,
    ort.disable_telemetry_events,
    ort.enable_telemetry_events,
    ort.get_all_providers,
    ort.get_ep_devices,
    ort.preload_dlls,
    ort.print_debug_info,
    ort.register_execution_provider_library,
    ort.unregister_execution_provider_library,
]
