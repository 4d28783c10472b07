package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/hook"
	"github.com/tranche-dev/tranche/pkg/share"
)

// hookTimeout is how long the plugin may take to limit the memory of a pod. The hook waits longer.
const hookTimeout = 12 * time.Second

// newLimiter returns what limits the memory of pods. It installs the program that asks for that on the
// host; if it cannot, the kernel driver limits no shares.
func (c *claims) newLimiter() *share.Limiter {
	return share.NewLimiter(share.LimiterConfig{
		Driver: c.drivers.Of, LoadID: c.drivers.LoadID, Records: c.recordsNow,
		UpdatePods: func(ctx context.Context, ref ledger.ClaimRef, pod types.UID) error {
			return c.UpdatePods(ctx, ref, pod, c.getClaim)
		},
		Groups: c.cgroupRoot(), OwnPod: c.PodUID, Untested: c.UntestedLimits, NoHook: c.installHook(),
		Events: c.events, Metrics: c.metrics,
	})
}

func (c *Config) installHook() error {
	if c.Hook == "" {
		return errors.New("the plugin has no program for hooks")
	}
	program, err := os.Open(c.Hook)
	if err != nil {
		return fmt.Errorf("read the program for hooks: %w", err)
	}
	defer program.Close()
	if err := durable.Install(program, filepath.Join(c.DataDir(), hook.Program)); err != nil {
		return fmt.Errorf("install the program for hooks on the host: %w", err)
	}
	return nil
}

// serveHook answers the program that the container runtime runs before a container with a share
// starts, until ctx ends.
func (p *plugin) serveHook(ctx context.Context) error {
	return serveSocket(ctx, hook.Socket(p.DataDir(), p.instance()), http.HandlerFunc(p.answerHook))
}

func (p *plugin) answerHook(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), hookTimeout)
	defer cancel()
	request, err := hook.ParseRequest(http.MaxBytesReader(w, r.Body, hook.MaxRequest+1))
	if err == nil {
		err = p.claims.limiter.Limit(ctx, request)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot limit the memory of a pod, so its container does not start", "claimUID", request.Claim, "group", request.Group)
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
