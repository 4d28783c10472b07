package share

import (
	"context"
	"fmt"
	"path/filepath"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hook"
)

const (
	// pipeDir is the folder of the MPS daemon's sockets in a container. It is short, because
	// the path of a socket is limited to 107 bytes.
	pipeDir = "/run/tranche/mps/pipe"
	// shmDir is the shared memory of MPS clients and servers.
	shmDir = "/dev/shm"
)

// Edits implements claim.Sharer.
func (s *Sharer) Edits(_ context.Context, h claim.Holder) (*cdispecs.ContainerEdits, error) {
	part := portion(h.Device)
	edits := &cdispecs.ContainerEdits{
		// Containers for KAI Scheduler read these. The second is the older name.
		Env: []string{names.EnvPortion + "=" + part, names.EnvPortionOlder + "=" + part},
	}
	if limitedByKernel(h.Device) {
		edits.Hooks = []*cdispecs.Hook{s.limitHook(h)}
	}
	id := s.Serves(h.Claim, h.Device)
	if id == "" {
		return edits, nil
	}
	limits, err := limitEnv(limitsOf(h))
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", h.Claim, err)
	}
	edits.Env = append(edits.Env, names.EnvMPSPipeDirectory+"="+pipeDir)
	edits.Env = append(edits.Env, limits...)
	edits.Mounts = []*cdispecs.Mount{
		bind(s.cfg.Daemons().PipeDir(id), pipeDir),
		bind(s.cfg.Daemons().ShmDir(id), shmDir),
	}
	return edits, nil
}

// limitHook runs in the namespaces of the runtime, when the container has its control group and before
// any of its programs runs. If it fails, the container does not start.
func (s *Sharer) limitHook(h claim.Holder) *cdispecs.Hook {
	return &cdispecs.Hook{
		HookName: "createRuntime", Path: filepath.Join(s.cfg.HookFolder, hook.Program),
		Args:    hook.Args(s.cfg.HookFolder, string(h.Claim.UID), h.Device.Key()),
		Timeout: new(int(hook.RuntimePatience.Seconds())),
	}
}

func bind(host, container string) *cdispecs.Mount {
	return &cdispecs.Mount{HostPath: host, ContainerPath: container, Type: "bind", Options: []string{"rw", "rbind", "nosuid", "nodev", "noexec"}}
}

// limitEnv returns the claim's limits as environment variables for CUDA. MPS ignores all limits,
// including its daemon's, if a value is invalid: a limit of 0, or one for more GPUs than exist.
// So with several GPUs there is no variable, and only the daemon's limits apply.
func limitEnv(limits []limit) ([]string, error) {
	var env []string
	if len(limits) == 1 {
		mib := limits[0].memory / gpu.MiB
		if mib < 1 {
			return nil, fmt.Errorf("a memory limit of %d bytes on GPU %s is less than the minimum of MPS (1 MiB)", limits[0].memory, gpu.NameOf(limits[0].gpu))
		}
		env = append(env, fmt.Sprintf("%s=0=%dM", names.EnvMPSMemoryLimit, mib))
	}
	// The same for all GPUs, otherwise specOf has refused the claim.
	if len(limits) > 0 && limits[0].compute != 0 {
		if limits[0].compute < 1 || limits[0].compute > gpu.WholeCompute {
			return nil, fmt.Errorf("a compute limit of %d %% on GPU %s is not in the range of MPS (1 to 100)", limits[0].compute, gpu.NameOf(limits[0].gpu))
		}
		env = append(env, fmt.Sprintf("%s=%d", names.EnvMPSComputeLimit, limits[0].compute))
	}
	return env, nil
}

// portion formats the part of a GPU or partition that a share has, from 0.01 to 1.00.
func portion(d ledger.Device) string {
	part := float64(d.Amount.Fraction) / gpu.WholeFraction
	if d.Placement.Share.By == gpu.ByMemory {
		part = float64(d.Amount.Memory) / float64(max(1, d.Placement.Memory))
	}
	return fmt.Sprintf("%.2f", max(part, 0.01))
}
