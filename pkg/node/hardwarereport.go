package node

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/node/hardwarereport"
)

// serveReport answers `tranche-kubelet-plugin hardware` until ctx ends.
func (p *plugin) serveReport(ctx context.Context) error {
	return hardwarereport.Serve(ctx, p.DataDir(), cmp.Or(string(p.PodUID), strconv.Itoa(os.Getpid())), p.hardwareReport)
}

// hardwareReport queries the hardware now, because a person may just have changed it.
func (p *plugin) hardwareReport(ctx context.Context) hardwarereport.Report {
	held := map[string][]hardwarereport.Device{}
	for _, r := range claim.InUse(p.claims.Ledger.List()) {
		for _, d := range r.Devices {
			held[d.Placement.GPU] = append(held[d.Placement.GPU], hardwarereport.Device{Name: d.Name, UUID: d.UUID, Owner: nameOf(&r) + p.partOf(r.Claim, d)})
		}
	}
	gpus := p.gpus.List()
	report := hardwarereport.Report{GPUs: make([]hardwarereport.GPU, len(gpus))}
	var wg sync.WaitGroup
	for i, g := range gpus {
		report.GPUs[i] = hardwarereport.GPU{Name: g.Name(), Problem: g.Problem, Devices: held[g.PCIAddress]}
		wg.Go(func() { p.ask(ctx, g.PCIAddress, &report.GPUs[i]) })
	}
	wg.Wait()
	return report
}

// ask adds to a GPU's report what only the hardware knows.
func (p *plugin) ask(ctx context.Context, pciAddress string, g *hardwarereport.GPU) {
	obstacles, err := p.obstaclesOf(ctx, pciAddress)
	if err != nil {
		g.Errors = append(g.Errors, err.Error())
	}
	for _, o := range byReason(obstacles) {
		g.Obstacles = append(g.Obstacles, shortNames(g.Name, devicesOf(obstacles, o))+": "+o.Reason)
	}
	foreign, _, err := p.claims.Compare(ctx, pciAddress)
	if err != nil {
		g.Errors = append(g.Errors, err.Error())
	}
	for _, f := range foreign {
		g.Devices = append(g.Devices, hardwarereport.Device{Name: f.Name(), UUID: f.UUID, Owner: "not made by Tranche: " + p.removalCommand(f)})
	}
	slices.SortStableFunc(g.Devices, func(a, b hardwarereport.Device) int { return strings.Compare(a.Name, b.Name) })
}
