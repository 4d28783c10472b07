package share

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	// pipeDir is where a container finds its MPS daemon. It is short: the path of a
	// socket in it can have 107 bytes.
	pipeDir = "/run/tranche/mps/pipe"
	// shmDir is where MPS's clients and servers share memory.
	shmDir = "/dev/shm"
)

// Edits implements claim.Sharer.
func (s *Sharer) Edits(_ context.Context, h claim.Holder) (*cdispecs.ContainerEdits, error) {
	part := portion(h.Device)
	edits := &cdispecs.ContainerEdits{
		// What KAI's containers read. The second is the older name of the first.
		Env: []string{"GPU_PORTION=" + part, "RUNAI_NUM_OF_GPUS=" + part},
	}
	id := s.Serves(h.Claim, h.Device)
	if id == "" {
		return edits, nil
	}
	limits, err := limitEnv(limitsOf(h))
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", h.Claim, err)
	}
	edits.Env = append(edits.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipeDir)
	edits.Env = append(edits.Env, limits...)
	edits.Mounts = []*cdispecs.Mount{
		bind(s.cfg.Daemons.PipeDir(id), pipeDir),
		bind(s.cfg.Daemons.ShmDir(id), shmDir),
	}
	return edits, nil
}

func bind(host, container string) *cdispecs.Mount {
	return &cdispecs.Mount{HostPath: host, ContainerPath: container, Type: "bind", Options: []string{"rw", "rbind", "nosuid", "nodev", "noexec"}}
}

// limitEnv is what CUDA reads of the claim's limits. MPS drops all limits, its
// daemon's included, at a value that it does not take: one of nothing, or one that
// names more GPUs than there are. So with several GPUs there is none, and what
// the daemon says holds alone.
func limitEnv(limits []limit) ([]string, error) {
	var env []string
	if len(limits) == 1 {
		mib := limits[0].memory / gpu.MiB
		if mib < 1 {
			return nil, fmt.Errorf("a memory limit of %d bytes on GPU %s is less than MPS can keep to (1 MiB)", limits[0].memory, gpu.NameOf(limits[0].gpu))
		}
		env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", mib))
	}
	// It is the same for all GPUs, or specOf would have refused the claim.
	if len(limits) > 0 && limits[0].compute != 0 {
		if limits[0].compute < 1 || limits[0].compute > gpu.WholeCompute {
			return nil, fmt.Errorf("a compute limit of %d %% on GPU %s is not one that MPS can keep to (1 to 100)", limits[0].compute, gpu.NameOf(limits[0].gpu))
		}
		env = append(env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", limits[0].compute))
	}
	return env, nil
}

// portion is how much of a GPU, or partition, a share is, from 0.01 to 1.00.
func portion(d ledger.Device) string {
	part := float64(d.Amount.Fraction) / gpu.WholeFraction
	if d.Placement.Share.By == gpu.ByMemory {
		part = float64(d.Amount.Memory) / float64(max(1, d.Placement.Memory))
	}
	return fmt.Sprintf("%.2f", max(part, 0.01))
}
