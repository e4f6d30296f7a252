// SPDX-License-Identifier: Apache-2.0

// A digit reader whose model is part of the program: `go generate && go build`.
package main

//go:generate onnxc compile ../models/digits.onnx -o digits.a --name digits

/*
#cgo LDFLAGS: ${SRCDIR}/digits.a -lm -ldl -lpthread
#include "digits.h"

// cgo calls functions, no pointers to them.
static int digits_create(int32_t threads, onnxc_context **context) {
	onnxc_options options = {.struct_size = sizeof options, .threads = threads};
	return digits_model()->create(&options, context);
}
static void digits_destroy(onnxc_context *context) { digits_model()->destroy(context); }
static const char *digits_error(const onnxc_context *context) { return digits_model()->last_error(context); }
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

const (
	pixels  = 64
	classes = 10
)

// Digits is what one caller at a time needs to run the model.
type Digits struct{ context *C.onnxc_context }

// NewDigits makes one; Close frees it.
func NewDigits(threads int) (*Digits, error) {
	runtime.LockOSThread() // an error without a context is its thread's
	defer runtime.UnlockOSThread()
	digits := &Digits{}
	if C.digits_create(C.int32_t(threads), &digits.context) != C.ONNXC_OK {
		return nil, errors.New(C.GoString(C.digits_error(nil)))
	}
	return digits, nil
}

// Close may be called more than once.
func (d *Digits) Close() {
	C.digits_destroy(d.context)
	d.context = nil
}

// Probabilities takes images of 64 numbers from 0 to 16 one after the other and gives 10 probabilities for each.
func (d *Digits) Probabilities(images []float32) ([]float32, error) {
	count := len(images) / pixels
	if count == 0 || len(images)%pixels != 0 {
		return nil, fmt.Errorf("%d numbers are no images of %d", len(images), pixels)
	}
	result := make([]float32, classes*count)
	status := C.digits_run(d.context, C.int64_t(count), (*C.float)(&images[0]), (*C.float)(&result[0]),
		C.size_t(len(result)), nil)
	if status != C.ONNXC_OK {
		return nil, errors.New(C.GoString(C.digits_error(d.context)))
	}
	return result, nil
}

func main() {
	digits, err := NewDigits(1)
	if err != nil {
		panic(err)
	}
	defer digits.Close()
	var images []float32
	for {
		var number float32
		if _, err := fmt.Fscan(os.Stdin, &number); err == io.EOF {
			break
		} else if err != nil {
			panic(err)
		}
		images = append(images, number)
	}
	probabilities, err := digits.Probabilities(images)
	if err != nil {
		panic(err)
	}
	for len(probabilities) > 0 {
		best := 0
		for k, p := range probabilities[:classes] {
			if p > probabilities[best] {
				best = k
			}
		}
		fmt.Println(best)
		probabilities = probabilities[classes:]
	}
}
