// The parts of the libraries that mxamp/html/assets/page.js uses.
import { dot, lineY, plot, pointer, ruleY, text, tip } from "@observablehq/plot";
import cytoscape from "cytoscape";
import dagre from "cytoscape-dagre";

cytoscape.use(dagre);

export { cytoscape };
export const Plot = { dot, lineY, plot, pointer, ruleY, text, tip };
