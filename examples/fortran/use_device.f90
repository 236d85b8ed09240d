!> Arrays that OpenACC has moved to a GPU: `host_data use_device` gives their addresses there, and
!> the solver reads and writes them where they lie. Where OpenACC runs on the host, the same
!> addresses are those of host memory.
!>
!>     gfortran -fopenacc PREFIX/include/sparsebatch.f90 use_device.f90 \
!>         $(pkg-config --libs sparsebatch)
program use_device
    use, intrinsic :: iso_fortran_env, only: real64, int32, int64
    use, intrinsic :: iso_c_binding, only: c_loc
    use openacc, only: acc_get_num_devices, acc_device_nvidia
    use sparsebatch
    implicit none
    integer, parameter :: n = 3, nnz = 7, nzones = 2000
    integer(int64), parameter :: nvalues = int(nnz, int64) * nzones, nrows = int(n, int64) * nzones
    integer(int32), parameter :: row_ptr(n + 1) = [1, 3, 6, 8], col_idx(nnz) = [1, 2, 1, 2, 3, 2, 3]
    ! gfortran takes no allocatable arrays in use_device.
    real(real64), target, save :: values(nnz, nzones), b(n, nzones), x(n, nzones)
    type(sb_context) :: context
    type(sb_batch) :: batch
    type(sb_solver) :: solver
    type(sb_options) :: options
    integer(int64) :: failed
    integer :: zone
    logical :: on_gpu

    on_gpu = acc_get_num_devices(acc_device_nvidia) > 0

    !$acc data create(values, b, x)
    ! The program's own loop writes the systems, on the GPU where there is one.
    ! All unknowns of a zone are its number.
    !$acc parallel loop present(values, b)
    do zone = 1, nzones
        values(:, zone) = [4.0_real64, -1.0_real64, -1.0_real64, 5.0_real64, -1.0_real64, &
            -1.0_real64, 4.0_real64]
        b(1, zone) = 3 * zone
        b(2, zone) = 3 * zone
        b(3, zone) = 3 * zone
    end do
    !$acc end parallel loop
    !$acc wait

    if (on_gpu) then
        call context%create(backend='gpu')
        options%space = SB_DEVICE
    else
        call context%create()
    end if
    call batch%uniform(context, nzones, row_ptr, col_idx)
    options%method = 'lu'
    !$acc host_data use_device(values, b, x)
    call solver%create(batch, c_loc(values), nvalues, options)
    call solver%factor()
    call solver%solve(c_loc(b), nrows, c_loc(x), nrows, by=SB_KEPT, nfailed=failed)
    !$acc end host_data
    !$acc update self(x)
    !$acc end data

    do zone = 1, nzones
        if (any(abs(x(:, zone) - zone) > 1e-9_real64 * zone)) error stop 'a wrong solution'
    end do
    if (failed /= 0) error stop 'systems that failed'
    print '(i0, 2a)', nzones, ' zones solved in memory of the ', merge('GPU ', 'host', on_gpu)
end program
