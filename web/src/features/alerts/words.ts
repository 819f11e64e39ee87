/** An alert as people say it: the metric by its name, values with the metric's unit. Pure. */
import type { Alert } from "../../api/types";
import { formatShare } from "../../shared/units";
import { METRICS } from "../paths/matrix";

/** "p50 is 0.1 ratio, above 0.02 ratio": the archiver's words of a limit. */
const LIMIT = /: (\w+) is [^,]*, (above|below) /;
const PATH = /^\S+ from (\S+) to (\S+): /;

export const metricLabel = (id: string): string => METRICS.find((metric) => metric.id === id)?.label ?? id;

/** "alpha → delta, Loss" */
export function subjectWords(subject: string): string {
  const [source = "", destination = "", metric = ""] = subject.split(",");
  return metric ? `${source} → ${destination}, ${metricLabel(metric)}` : subject.replaceAll(",", ", ");
}

type Told = Pick<Alert, "subject" | "summary" | "value" | "threshold">;

/** What is wrong, without where. */
export function findingWords({ subject, summary, value, threshold }: Told): string {
  const metric = METRICS.find(({ id }) => id === subject.split(",")[2]);
  const limit = LIMIT.exec(summary);
  if (metric && limit) {
    const [, statistic, side] = limit;
    const share = statistic === "loss_ratio" && metric.id !== "loss_ratio";
    const words = (one: number) => (share ? `${formatShare(one, 1)} lost` : metric.format(one));
    return `${words(value)}, ${side ?? ""} ${words(threshold)}`;
  }
  return summary.replace(PATH, "");
}
