// The parts of Tabulator that the table of operators needs; fetch.sh makes tabulator.min.js of it.
export { Tabulator } from "tabulator-tables";
import {
  DataTreeModule, FilterModule, FormatModule, ResizeTableModule, ResponsiveLayoutModule, SortModule, Tabulator, TooltipModule,
} from "tabulator-tables";
Tabulator.registerModule([
  DataTreeModule, FilterModule, FormatModule, ResizeTableModule, ResponsiveLayoutModule, SortModule, TooltipModule,
]);
