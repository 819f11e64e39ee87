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
export type Preview = Schemas["Preview"];
export type Series = Schemas["Series"];
export type ServiceType = RateRequestBody["service"];
export type RateRequestChange = Schemas["RateRequestChange"];
export type Confirmation = Schemas["Confirmation"];
export type Estimate = Schemas["Estimate"];
export type EstimatePage = Schemas["EstimatePage"];
export type FoundPath = Schemas["FoundPath"];
export type LinkCapacity = Schemas["LinkCapacity"];
export type Tunnel = Schemas["Tunnel"];
export type TunnelDetail = Schemas["TunnelDetail"];
export type TunnelStep = Schemas["TunnelStep"];
export type SensingConfiguration = Schemas["SensingConfiguration"];
export type SensingReport = Schemas["SensingReport"];
export type Alert = Schemas["Alert"];
export type AlertRule = Schemas["AlertRule"];
export type AlertRuleBody = Schemas["AlertRuleBody"];
export type AuditRecord = Schemas["AuditRecord"];
export type Flow = Schemas["Flow"];
export type NodeKey = Schemas["NodeKey"];
export type Authorisation = Schemas["Authorisation"];
export type Policy = Schemas["Policy"];
export type PolicyBody = Schemas["PolicyBody"];
