//! Copies from and to pinned memory, on a GPU.

use sparsebatch_cuda::device::Event;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Device, Executor, GpuError, PageLocked, PinnedBuffer, lending};

use sparsebatch_testing::random_integers as integers;

#[test]
fn pinned_copies_arrive_in_the_order_of_the_stream_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    for len in [0, 1, 1000, 10_000_000] {
        let host = integers::<f64>(len, 1);
        let up = PinnedBuffer::from_slice(&device, &host).unwrap();
        let mut down = PinnedBuffer::<f64>::new(&device, len).unwrap();
        assert!(down.as_slice().unwrap().iter().all(|&value| value == 0.0));
        let mut buffer = device.alloc(len).unwrap();

        device.copy_from_pinned(&up, &mut buffer).unwrap();
        device.copy_to_pinned(&buffer, &mut down).unwrap();
        device.fill_zero(&mut buffer).unwrap();

        assert!(down.as_slice().unwrap() == host, "{len}");
        assert!(device.download(&buffer).unwrap() == vec![0.0; len], "{len}");
        assert_eq!((up.len(), up.is_empty()), (len, len == 0));
    }
}

/// A buffer is overwritten, and dropped, right after its copy began.
#[test]
fn writing_and_dropping_wait_for_copies_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    const LEN: usize = 20_000_000;
    let mut up = PinnedBuffer::from_slice(&device, &vec![1.0_f32; LEN]).unwrap();
    let mut first = device.alloc(LEN).unwrap();
    let mut second = device.alloc(LEN).unwrap();

    device.copy_from_pinned(&up, &mut first).unwrap();
    up.as_mut_slice().unwrap().fill(2.0);
    device.copy_from_pinned(&up, &mut second).unwrap();
    drop(up);
    let _taken_again = PinnedBuffer::from_slice(&device, &vec![3.0_f32; LEN]).unwrap();

    assert!(device.download(&first).unwrap().iter().all(|&value| value == 1.0));
    assert!(device.download(&second).unwrap().iter().all(|&value| value == 2.0));
}

/// The event of a buffer stands for its copies on all streams.
#[test]
fn a_buffer_is_used_on_two_streams_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    const LEN: usize = 20_000_000;
    let other = Device::new(0).unwrap();
    let mut up = PinnedBuffer::from_slice(&device, &vec![1_u32; LEN]).unwrap();
    let mut large = device.alloc(LEN).unwrap();
    let mut twin = other.alloc(LEN).unwrap();

    device.copy_from_pinned(&up, &mut large).unwrap();
    other.copy_from_pinned(&up, &mut twin).unwrap();
    up.as_mut_slice().unwrap().fill(2);

    assert!(device.download(&large).unwrap().iter().all(|&value| value == 1));
    assert!(other.download(&twin).unwrap().iter().all(|&value| value == 1));
}

/// Copies from memory of the caller end before the loan does.
#[test]
fn page_locked_memory_of_the_caller_is_lent_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    const LEN: usize = 20_000_000;
    let values = vec![1.0_f64; LEN];
    let mut buffers = [device.alloc(LEN).unwrap(), device.alloc(LEN - 2).unwrap()];
    assert!(!device.is_page_locked(&values));
    let refused = lending(&device, |lender| lender.copy(&values, &mut buffers[0]));
    assert!(
        matches!(refused, Err(GpuError::InvalidArgument { name: "values", .. })),
        "{refused:?}"
    );

    let mut locked = PageLocked::new(&device, values).unwrap();
    assert!(device.is_page_locked(&locked) && device.is_page_locked(&locked[7..9]));
    assert!(!device.is_page_locked::<f64>(&[]));
    lending(&device, |lender| {
        lender.copy(&locked, &mut buffers[0]).unwrap();
        lender.copy(&locked[1..LEN - 1], &mut buffers[1]).unwrap();
        let short = lender.copy(&locked[1..], &mut buffers[1]);
        assert!(matches!(short, Err(GpuError::Length { .. })), "{short:?}");
    });
    locked.fill(2.0);
    let values = locked.into_vec();
    assert!(!device.is_page_locked(&values) && values[LEN - 1] == 2.0);

    for buffer in buffers {
        assert!(device.download(&buffer).unwrap().iter().all(|&value| value == 1.0));
    }
    let empty = PageLocked::<u8>::new(&device, Vec::new()).unwrap();
    assert!(empty.is_empty());
    let pinned = PinnedBuffer::from_slice(&device, &[1_u32, 2]).unwrap();
    assert!(device.is_page_locked(pinned.as_slice().unwrap()));
}

#[test]
fn events_order_streams_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    const LEN: usize = 50_000_000;
    let other = Device::new(0).unwrap();
    let done = Event::new(&device).unwrap();
    let up = PinnedBuffer::from_slice(&device, &vec![5_u8; LEN]).unwrap();
    let mut down = PinnedBuffer::<u8>::new(&device, LEN).unwrap();
    let mut buffer = device.alloc_zeroed(LEN).unwrap();
    device.synchronize().unwrap();

    device.copy_from_pinned(&up, &mut buffer).unwrap();
    done.record(&device).unwrap();
    done.hold(&other).unwrap();
    other.copy_to_pinned(&buffer, &mut down).unwrap();

    assert!(down.as_slice().unwrap().iter().all(|&value| value == 5));
}

#[test]
fn other_lengths_and_recording_streams_are_refused_on_a_gpu() {
    let Some(device) = device_or_skip() else { return };
    let mut host = PinnedBuffer::<u8>::new(&device, 3).unwrap();
    let mut buffer = device.upload(&[1_u8, 2, 3, 4]).unwrap();
    let refused = GpuError::Length { name: "host", expected: 4, found: 3 };

    assert_eq!(device.copy_from_pinned(&host, &mut buffer), Err(refused.clone()));
    assert_eq!(device.copy_to_pinned(&buffer, &mut host), Err(refused));
    assert!(PinnedBuffer::<u64>::new(&device, usize::MAX).is_err());
    let mut part = buffer.range(0..3).unwrap();
    let recorded = device.capture(|device| device.copy_from_pinned(&host, &mut part)).map(|_| ());
    assert!(matches!(recorded, Err(GpuError::InvalidArgument { name: "stream", .. })));

    device.copy_to_pinned(&part, &mut host).unwrap();
    assert_eq!(host.as_slice().unwrap(), [1, 2, 3]);
}
