/** Shapes of the REST interface, from the generated schema. Rates are bits per second, times RFC 3339 UTC. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Problem = Schemas["Problem"];
export type NetworkNode = Schemas["Node"];
export type Link = Schemas["Link"];
export type LinkLoad = Schemas["LinkLoad"];
export type LinkRate = Schemas["LinkRate"];
export type Measurement = Schemas["Measurement"];
export type RateRequest = Schemas["RateRequest"];
export type RateRequestBody = Schemas["RateRequestBody"];
export type RateRequestPage = Schemas["RateRequestPage"];
export type Preview = Schemas["Preview"];
export type Series = Schemas["Series"];
export type Session = Schemas["Session"];
export type ServiceType = RateRequestBody["service"];
