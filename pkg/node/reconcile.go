package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
)

func (p *plugin) reconcile(ctx context.Context) {
	p.report(ctx, p.claims.Reconcile(ctx, p.getClaim))
	if err := p.removeOrphanMetadata(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the metadata of deleted claims, which is retried")
	}
}

// getClaim implements claim.GetClaim.
func (p *plugin) getClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	c, err := p.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return c, err
}

func (p *plugin) report(ctx context.Context, findings []claim.Finding) {
	for _, f := range findings {
		p.metrics.Finding(f.Reason, f.Err)
		message := f.Message
		if f.Err != nil {
			message += fmt.Sprintf(": %v", f.Err)
		}
		p.events.Warn(ctx, f.Reason, message)
	}
}

// removeOrphanMetadata removes files that the kubeletplugin helper has written for claims that
// are gone. The helper does that only when the kubelet releases them.
func (p *plugin) removeOrphanMetadata(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(p.CDIDir, names.DriverName+"_metadata_*.json"))
	if err != nil {
		return fmt.Errorf("list the CDI files of metadata: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(p.DataDir(), "dra-device-metadata", "*_*"))
	if err != nil {
		return fmt.Errorf("list the metadata: %w", err)
	}
	byClaim := map[types.UID][]string{}
	var uids []types.UID
	for _, file := range files {
		if uid, ok := cdi.MetadataClaim(file); ok {
			byClaim[uid] = append(byClaim[uid], file)
			uids = append(uids, uid)
		}
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
	for _, c := range p.holdingClaims() {
		claims[c.Namespace+"_"+c.Name] = true
	}
	for _, folder := range folders {
		if !claims[filepath.Base(folder)] {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}
