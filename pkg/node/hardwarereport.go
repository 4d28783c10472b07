package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/follow"
	"github.com/tranche-dev/tranche/pkg/text"
)

// The hardware report is what `tranche-kubelet-plugin hardware` prints: who owns the partitions of
// a node's GPUs, and what cannot be allocated now and why. nvidia-smi and amd-smi do not know that.

// HardwareReport describes the GPUs of one node.
type HardwareReport struct {
	metav1.TypeMeta `json:",inline"`

	GPUs []ReportedGPU `json:"gpus"`
}

// ReportedGPU is one GPU of the node.
type ReportedGPU struct {
	// Name is the name of the GPU's device ("gpu-0000-1b-00-0").
	Name string `json:"name"`
	// Problems are why the GPU cannot be used.
	Problems []v1beta1.GPUProblem `json:"problems,omitempty"`
	// Obstacles say what cannot be allocated now, and why: mostly because a process blocks
	// a mode change.
	Obstacles []ReportedObstacle `json:"obstacles,omitempty"`
	// Devices lists the devices in use, once for each owner.
	Devices []ReportedDevice `json:"devices,omitempty"`
	// Unread is what the GPU did not answer.
	Unread []text.Unread `json:"unread,omitempty"`
}

// ReportedObstacle is why devices cannot be allocated.
type ReportedObstacle struct {
	Devices []string `json:"deviceNames"`
	Message string   `json:"message"`
}

// ReportedDevice is a device of a GPU and one of its owners.
type ReportedDevice struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
	// Namespace, Claim and Pods are its holder.
	Namespace string   `json:"namespace,omitempty"`
	Claim     string   `json:"claimName,omitempty"`
	Pods      []string `json:"podNames,omitempty"`
	// Foreign is true if Tranche did not create the partition. RemovalCommand removes it.
	Foreign        bool   `json:"foreign,omitempty"`
	RemovalCommand string `json:"removalCommand,omitempty"`
	// owner is all of it for people.
	owner string
}

func (r HardwareReport) writeText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, g := range r.GPUs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", g.Name, cmp.Or(v1beta1.ProblemText(g.Problems), "healthy"))
		for _, o := range g.Obstacles {
			fmt.Fprintf(out, "  cannot be allocated now: %s: %s\n", shortNames(g.Name, o.Devices), o.Message)
		}
		for _, sentence := range text.Sentences(g.Unread) {
			fmt.Fprintf(out, "  Note: %s\n", sentence)
		}
		if len(g.Devices) > 0 {
			fmt.Fprintln(out, "  DEVICE\tUUID\tOWNER")
		}
		for _, d := range g.Devices {
			fmt.Fprintf(out, "  %s\t%s\t%s\n", d.Name, cmp.Or(d.UUID, "-"), d.owner)
		}
	}
	return out.Flush()
}

// hardwareReport queries the hardware now, because a person may just have changed it.
func (m *monitor) hardwareReport(ctx context.Context) HardwareReport {
	held := map[string][]ReportedDevice{}
	for _, r := range ledger.InUse(m.records.List()) {
		for _, d := range r.Devices {
			held[d.Placement.GPU] = append(held[d.Placement.GPU], ReportedDevice{
				Name: d.Name, UUID: d.UUID, Namespace: r.Claim.Namespace, Claim: r.Claim.Name, Pods: r.PodNames(),
				owner: nameOf(&r) + m.claims.partOf(r.Claim, d),
			})
		}
	}
	gpus := m.gpus.List()
	report := HardwareReport{TypeMeta: metav1.TypeMeta{APIVersion: names.OutputVersion, Kind: "HardwareReport"}, GPUs: make([]ReportedGPU, len(gpus))}
	var wg sync.WaitGroup
	for i, g := range gpus {
		report.GPUs[i] = ReportedGPU{Name: g.Name(), Problems: follow.ProblemsOf(g.Problem), Devices: held[g.PCIAddress]}
		wg.Go(func() { m.ask(ctx, g.PCIAddress, &report.GPUs[i]) })
	}
	wg.Wait()
	return report
}

// ask adds to a GPU's report what only the hardware knows.
func (m *monitor) ask(ctx context.Context, pciAddress string, g *ReportedGPU) {
	unread := func(err error, consequence string) {
		if err != nil {
			g.Unread = append(g.Unread, text.Unread{Message: err.Error(), Consequence: consequence})
		}
	}
	obstacles, err := m.obstaclesOf(ctx, pciAddress)
	unread(err, "what cannot be allocated now is not known")
	for _, o := range byReason(obstacles) {
		g.Obstacles = append(g.Obstacles, ReportedObstacle{devicesOf(obstacles, o), o.Reason})
	}
	foreign, _, err := m.claims.Compare(ctx, pciAddress)
	unread(err, "partitions that Tranche did not create are not known")
	for _, f := range foreign {
		remove := hardware.Lookup(m.drivers.Of).RemovalCommand(f)
		g.Devices = append(g.Devices, ReportedDevice{Name: f.Name(), UUID: f.UUID, Foreign: true, RemovalCommand: remove, owner: "not made by Tranche: " + remove})
	}
	slices.SortStableFunc(g.Devices, func(a, b ReportedDevice) int { return strings.Compare(a.Name, b.Name) })
}
