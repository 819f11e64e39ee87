/** Small hooks that every page uses. */
import { useDocumentTitle } from "@mantine/hooks";
import { useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";

import type { Role } from "../api/client";
import { useSession } from "../api/useLive";
import { type RangeSearch, resolveRange, type TimeRange } from "./timeRange";

/** The present, renewed every so many milliseconds, for ages and for what has become stale. */
export function useNow(periodMs = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, periodMs);
    return () => {
      clearInterval(timer);
    };
  }, [periodMs]);
  return now;
}

/** A value as it was at the last tick; 0: as it is. For what is costly to show and changes all the time. */
export function useSampled<T>(value: T, periodMs: number): T {
  const latest = useRef(value);
  const [sampled, setSampled] = useState(value);
  useEffect(() => {
    latest.current = value;
  }, [value]);
  useEffect(() => {
    if (periodMs === 0) return;
    const timer = setInterval(() => {
      setSampled(() => latest.current);
    }, periodMs);
    return () => {
      clearInterval(timer);
    };
  }, [periodMs]);
  return periodMs === 0 ? value : sampled;
}

/** Title of the browser's tab: the page's name first, since tabs are narrow. */
export function usePageTitle(title: string): void {
  useDocumentTitle(`${title} · CHART`);
}

/** The time range of the address; one that ends now moves on with the clock. */
export function useRange(periodMs = 10_000): TimeRange {
  const { range, from, until }: RangeSearch = useSearch({ strict: false });
  const now = useNow(periodMs);
  return useMemo(() => resolveRange({ range, from, until }, now), [range, from, until, now]);
}

/** Whether the signed-in person has one of these roles. The gateway refuses all the same; this hides what it would. */
export function useMay(...roles: Role[]): boolean {
  const session = useSession();
  return (session.data?.roles ?? []).some((role) => roles.includes(role));
}
