package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
)

func (a *app) serveCmd() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the store on a Unix socket and over TCP",
		Long: `Serve opens the store and serves it on a Unix socket and over TCP, with TLS if there is a certificate.
It speaks Connect (JSON with curl), gRPC and gRPC-Web. If there is no store, it creates one with its
key and a first token for --user of --tenant.

SIGTERM and SIGINT stop the server after it has answered in-flight requests; a second signal stops it
at once. With --until-unused 30s it also stops, with exit code 0, once no connection to the API has
been open for 30 s, counted from its start. SIGHUP reloads the configuration, tokens, certificates
and key sets, and reopens the audit log. Sockets passed by systemd replace --listen and --socket.

The configuration file is TOML. Its keys are the flag names; the tables peer, certificate and jwt
grant access. Flags override the environment (CKPTD_IN_FLIGHT for --in-flight), which overrides the
file.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("server") {
				return usagef("serve opens the store itself: omit --server")
			}
			given := flagsGiven(cmd.Flags())
			if err := a.configure(cmd.Flags(), &o); err != nil {
				return err
			}
			return a.serve(cmd.Context(), &o, given, fixedOf(cmd.Flags()))
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// serve runs the daemon until a signal ends it. given are the flags of the command line, for when
// it reads the rest again.
func (a *app) serve(ctx context.Context, o *serveOptions, given map[string][]string, fixed fixedFlags) (err error) {
	r, err := a.start(ctx, o)
	if err != nil {
		return err
	}
	r.fixed = fixed
	defer func() { err = errors.Join(err, r.close()) }()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	served := r.serveAll()
	if err := a.greet(r, o); err != nil {
		return err
	}
	r.log.Info("serving", "version", buildVersion(), "pid", os.Getpid())
	tell(daemon.SdNotifyReady)
	defer keepAlive()()
	var unused <-chan struct{}
	if o.untilUnused > 0 {
		unused = r.server.Unused(o.untilUnused)
	}
	for {
		select {
		case <-hangup:
			tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
			if err := a.reload(r, given); err != nil {
				r.log.Error("reloading failed; settings not yet reloaded are unchanged", "error", err)
			} else {
				r.log.Info("reloaded")
			}
			tell(daemon.SdNotifyReady)
		case err := <-served:
			return errors.Join(fmt.Errorf("serving: %w", err), r.shutdown(o.drain))
		case err := <-r.server.Failed():
			r.log.Error("a write failed, and the store has stopped: ending")
			return errors.Join(err, r.shutdown(time.Second))
		case <-unused:
			return r.end(o.drain, "no connection has been open for "+o.untilUnused.String())
		case <-ctx.Done():
			return r.end(o.drain, "a signal")
		}
	}
}

// end stops serving in an orderly way, and logs the reason.
func (r *running) end(drain time.Duration, reason string) error {
	tell(daemon.SdNotifyStopping)
	r.log.Info("shutting down", "reason", reason, "in_flight", r.server.InFlight(), "at_most", drain.String())
	err := r.shutdown(drain)
	r.log.Info("stopped")
	return err
}

// shutdown waits for in-flight requests, unless that takes too long or a second signal arrives.
func (r *running) shutdown(most time.Duration) error {
	timed, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	ctx, stop := signal.NotifyContext(timed, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := r.server.Shutdown(ctx)
	if ctx.Err() != nil {
		r.log.Warn("requests were cut off; acknowledged saves are kept")
		return nil
	}
	return err
}

// tell notifies systemd of the state of the daemon, if it asked for that.
func tell(state string) {
	daemon.SdNotify(false, state) // nothing depends on a listener
}

// keepAlive notifies systemd regularly that the daemon is alive, if it asked for that, until it is
// stopped.
func keepAlive() (stop func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(every / 2)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell(daemon.SdNotifyWatchdog)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
