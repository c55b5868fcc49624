// The parts of Apache ECharts that the page draws with; fetch.sh makes echarts.min.js of it.
export { init } from "echarts/core";
import { use } from "echarts/core";
import { LineChart, ScatterChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";
use([
  LineChart, ScatterChart, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent,
  CanvasRenderer,
]);
