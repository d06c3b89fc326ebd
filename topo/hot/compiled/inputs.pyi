from topo.hot.plain.inputs import run_inputs as run_inputs
