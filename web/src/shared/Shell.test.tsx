import { RouterProvider } from "@tanstack/react-router";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { router } from "../router";
import { renderInApp, stubGateway } from "./samples";

const SESSION = { subject: "dev-viewer", roles: ["viewer"], expires_at: 4_000_000_000 };
const UNAUTHENTICATED = {
  type: "about:blank",
  title: "Sign in",
  status: 401,
  detail: "There is no session.",
};

class SilentSource {
  addEventListener = vi.fn();
  close = vi.fn();
}

describe("the frame of every page", () => {
  let signedIn = false;
  let offers: { login_url: string | null; development: boolean };

  beforeEach(() => {
    signedIn = false;
    offers = { login_url: null, development: true };
    vi.stubGlobal("EventSource", SilentSource);
    vi.stubGlobal(
      "fetch",
      vi.fn(
        stubGateway({
          "GET /auth/me": () =>
            signedIn ? { status: 200, body: SESSION } : { status: 401, body: UNAUTHENTICATED },
          "POST /auth/dev-login": () => {
            signedIn = true;
            return { status: 200, body: SESSION };
          },
          "GET /auth/sign-in": () => ({ status: 200, body: offers }),
          "POST /auth/logout": () => {
            signedIn = false;
            return { status: 200, body: {} };
          },
          "GET /v1/nodes": () => ({ status: 200, body: { items: [] } }),
          "GET /v1/links": () => ({ status: 200, body: { items: [] } }),
        }),
      ),
    );
  });
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  it("asks to sign in, shows the page for the session, and lets go of it", async () => {
    const user = userEvent.setup();
    renderInApp(<RouterProvider router={router} />);
    await user.click(await screen.findByRole("radio", { name: "viewer" }));
    await user.click(screen.getByRole("button", { name: "Sign in as viewer" }));
    expect(await screen.findByText("dev-viewer")).toBeInTheDocument();
    expect(await screen.findByText("Nodes reporting")).toBeInTheDocument();
    expect(document.title).toBe("Overview · CHART");
    await user.click(screen.getByRole("button", { name: "Sign out" }));
    expect(await screen.findByRole("heading", { name: "Sign in" })).toBeInTheDocument();
  });

  it("sends the browser to the identity provider where there is one, and back to this page", async () => {
    offers = { login_url: "/auth/login", development: false };
    renderInApp(<RouterProvider router={router} />);
    const link = await screen.findByRole("link", { name: "Sign in with the identity provider" });
    expect(link).toHaveAttribute("href", expect.stringMatching(/^\/auth\/login\?return_to=%2F/));
    expect(screen.queryByRole("radiogroup", { name: "Role" })).not.toBeInTheDocument();
  });

  it("says that the gateway does not answer, instead of asking to sign in", async () => {
    vi.stubGlobal("fetch", vi.fn().mockRejectedValue(new TypeError("network")));
    renderInApp(<RouterProvider router={router} />);
    expect(await screen.findByRole("alert")).toHaveTextContent("No response from the gateway");
    expect(screen.queryByRole("heading", { name: "Sign in" })).not.toBeInTheDocument();
  });

  it("keeps the page while the gateway is away, and asks to sign in once it says that the session is over", async () => {
    signedIn = true;
    const { queries } = renderInApp(<RouterProvider router={router} />);
    expect(await screen.findByText("Nodes reporting")).toBeInTheDocument();
    const answering = globalThis.fetch;
    vi.stubGlobal("fetch", vi.fn().mockRejectedValue(new TypeError("network")));
    await queries.refetchQueries({ queryKey: ["session"] });
    expect(screen.getByText("Nodes reporting")).toBeInTheDocument();
    vi.stubGlobal("fetch", answering);
    signedIn = false;
    await queries.refetchQueries({ queryKey: ["session"] });
    expect(await screen.findByRole("heading", { name: "Sign in" })).toBeInTheDocument();
  });
});
