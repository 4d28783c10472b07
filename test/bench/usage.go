package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/node/telemetry"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// scrapes is how often the metrics are scraped.
const scrapes = 101

// usageFigures: a scrape of all metrics of a plugin with 8 GPUs and 56 partitions, each of which
// a pod holds. One GPU hangs.
func (b *bench) usageFigures() []figures.Figure {
	return []figures.Figure{{
		Name:    "scrape of 8 × H100 with 56 partitions while a GPU hangs",
		Limit:   figures.Below(50, "ms"),
		Measure: b.timeScrape,
	}}
}

func (b *bench) timeScrape(ctx context.Context) (figures.Reading, error) {
	driver, root, err := b.openNVIDIA(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	defer driver.Close(context.WithoutCancel(ctx)) //nolint:errcheck // a simulated driver
	gpus, records, err := partitionAll(ctx, driver)
	if err != nil {
		return figures.Reading{}, err
	}
	faults := nvdriver.Faults{Load: []load.Load{{GPU: "*", Compute: 50, Memory: 30}}}
	if err := nvdriver.SetFaults(root, faults); err != nil {
		return figures.Reading{}, err
	}
	list := func() []ledger.Record { return slices.Clone(records) }
	sampler := telemetry.NewSampler(telemetry.SamplerConfig{
		Interval: time.Minute, GPUs: func() []gpu.GPU { return gpus }, Read: driver.Usage, Records: list,
		PodOf: func(int) (types.UID, error) { return "", nil },
	})
	metrics := telemetry.NewMetrics(nodeName, list)
	metrics.Register(sampler)
	metrics.OfferedGPUs(gpus)
	published := make([]publish.GPU, len(gpus))
	for i := range gpus {
		published[i].GPU = gpus[i]
	}
	all, errs := publish.Slices(published)
	if len(errs) > 0 {
		return figures.Reading{}, fmt.Errorf("%v", errs)
	}
	metrics.PublishedDevices(all)
	sampler.Measure(ctx)
	sampler.Measure(ctx)
	faults.Calls = []nvdriver.CallFault{{Call: "GetPowerUsage", GPU: gpus[0].PCIAddress, Hang: true}}
	if err := nvdriver.SetFaults(root, faults); err != nil {
		return figures.Reading{}, err
	}
	hanging, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); sampler.Measure(hanging) }()
	defer func() { stop(); <-done; _ = nvdriver.SetFaults(root, nvdriver.Faults{}) }()
	return scrapeOften(ctx, metrics)
}

// scrapeOften returns the median of many scrapes.
func scrapeOften(ctx context.Context, metrics *telemetry.Metrics) (figures.Reading, error) {
	took, series := make([]time.Duration, scrapes), 0
	for i := range took {
		answer := httptest.NewRecorder()
		start := time.Now()
		metrics.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
		took[i] = time.Since(start)
		series = strings.Count(answer.Body.String(), "\ntranche_")
		if of := strings.Count(answer.Body.String(), `tranche_compute_active_ratio{claim="claim`); of != 56 {
			return figures.Reading{}, fmt.Errorf("scrape: %d partitions with activity, not 56", of)
		}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	return figures.Reading{
		Value: float64(median.Microseconds()) / 1000,
		Seen:  fmt.Sprintf("median of %d, slowest %s, %d series", scrapes, took[len(took)-1].Round(100*time.Microsecond), series),
	}, nil
}

// openNVIDIA opens the driver on a simulated machine.
func (b *bench) openNVIDIA(ctx context.Context, inventory string) (*nvidia.Driver, string, error) {
	inv, err := models.LoadInventory(inventory)
	if err != nil {
		return nil, "", err
	}
	root, err := os.MkdirTemp(b.dir, "usage")
	if err != nil {
		return nil, "", err
	}
	library, err := nvdriver.New(inv, nvdriver.Options{Root: root, Sleep: func(time.Duration) {}})
	if err != nil {
		return nil, "", err
	}
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: root, SysRoot: filepath.Join(root, "sys")})
	if err != nil {
		return nil, "", err
	}
	return driver, root, driver.Open(ctx)
}

// partitionAll makes the smallest partitions of all GPUs, with a claim for each.
func partitionAll(ctx context.Context, driver *nvidia.Driver) (gpus []gpu.GPU, records []ledger.Record, err error) {
	if gpus, err = driver.Inventory(ctx); err != nil {
		return nil, nil, err
	}
	for _, g := range gpus {
		if err := driver.SetMIG(ctx, g.PCIAddress, true, false); err != nil {
			return nil, nil, err
		}
		for _, p := range g.Placements {
			if p.Type != gpu.TypeMIG || p.Profile != "1g.10gb" || p.Start > 6 {
				continue
			}
			part, err := driver.Create(ctx, p)
			if err != nil {
				return nil, nil, err
			}
			name := fmt.Sprint("claim-", len(records))
			records = append(records, ledger.Record{
				Claim: ledger.ClaimRef{UID: types.UID(name), Namespace: "team", Name: name}, State: ledger.Prepared,
				Devices: []ledger.Device{{Name: p.Name(), Placement: p, UUID: part.UUID, Made: true}},
				Pods:    []ledger.Pod{{Name: name, UID: types.UID("pod-" + name)}},
			})
		}
	}
	return gpus, records, nil
}
