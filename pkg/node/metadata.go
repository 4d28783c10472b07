package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// removeOrphanMetadata removes what the kubeletplugin helper has written for
// claims that are gone: it does so itself only when the kubelet releases them.
func (p *plugin) removeOrphanMetadata(ctx context.Context) error {
	prefix := gpu.DriverName + "_metadata_"
	files, err := filepath.Glob(filepath.Join(p.CDIDir, prefix+"*.json"))
	if err != nil {
		return fmt.Errorf("list the CDI files of metadata: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(p.dataDir(), "dra-device-metadata", "*_*"))
	if err != nil {
		return fmt.Errorf("list the metadata: %w", err)
	}
	byClaim := map[types.UID][]string{}
	var uids []types.UID
	for _, file := range files {
		uid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), prefix), "_")
		byClaim[types.UID(uid)] = append(byClaim[types.UID(uid)], file)
		uids = append(uids, types.UID(uid))
	}
	forgotten, err := p.claims.Forgotten(ctx, uids)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range forgotten {
		for _, file := range byClaim[uid] {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	claims := map[string]bool{}
	for _, r := range p.claims.Ledger.List() {
		claims[r.Claim.Namespace+"_"+r.Claim.Name] = true
	}
	for _, folder := range folders {
		if !claims[filepath.Base(folder)] {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}
