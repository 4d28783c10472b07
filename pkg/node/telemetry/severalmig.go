package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// WarnSeveralMIG warns the pods of a claim if one of its requests has several MIG partitions. A
// container gets all devices of a request, and a CUDA process can use one MIG partition only
// (NVIDIA, Multi-Instance GPU User Guide, "CUDA Device Enumeration"). A claim does not say
// whether one container also gets several of its requests.
//
// before is the record of the claim before it was prepared: a pod is warned once.
func (e *Events) WarnSeveralMIG(ctx context.Context, before, now ledger.Record) {
	request, partitions := severalMIG(now)
	if partitions == nil {
		return
	}
	for _, pod := range now.Pods {
		if before.State == ledger.Prepared && slices.Contains(before.Pods, pod) {
			continue
		}
		e.WarnPod(ctx, now.Claim.Namespace, pod, names.EventSeveralMIGPartitions, fmt.Sprintf(
			"Request %s of claim %s has %d MIG partitions (%s), and a container gets all of them. A CUDA process uses one only: request one larger partition, or give each container or process a partition of its own",
			request, now.Claim.Name, len(partitions), strings.Join(partitions, ", ")))
	}
}

// severalMIG returns the first request of a claim that has several MIG partitions, and their
// names; nil if there is none. Several shares of one partition do not count.
func severalMIG(r ledger.Record) (request string, partitions []string) {
	byRequest := map[string][]string{}
	for _, d := range r.Devices {
		if base := d.Placement.Base(); base.Type == gpu.TypeMIG && !slices.Contains(byRequest[d.Request], base.Name()) {
			byRequest[d.Request] = append(byRequest[d.Request], base.Name())
		}
	}
	for _, d := range r.Devices {
		if partitions := byRequest[d.Request]; len(partitions) > 1 {
			return d.Request, partitions
		}
	}
	return "", nil
}
